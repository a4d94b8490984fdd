package other

import (
	_ "example.com/anything"
)
