package helpers

import (
	_ "fmt"
)
