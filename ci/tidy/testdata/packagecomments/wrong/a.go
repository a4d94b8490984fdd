// The wrong beginning.
package wrong
