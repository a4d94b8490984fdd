package keeper

import (
	_ "golang.org/x/sys/unix"
)
