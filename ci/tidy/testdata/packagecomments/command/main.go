// Command is anything.
package main
