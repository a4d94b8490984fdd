// A stray comment.

package none
