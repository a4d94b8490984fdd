//go:build !linux

package onhost

import (
	"context"
	"errors"
	"time"
)

// errSystem is why no agent runs on this system; openBoot has found that out before.
var errSystem = errors.New("agents run on hosts with Linux only")

func uptime() time.Duration { panic(errSystem) }

func rebootKernel(context.Context) error { return errSystem }

func openWatchdog(string, time.Duration) (device, error) { return nil, errSystem }
