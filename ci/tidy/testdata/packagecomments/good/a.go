// Package good is good.
package good
