package workers

import (
	"context"
	"fmt"
	"os"

	"github.com/fencelab/fencelab/scenarios/campaign"
)

// Argument is the one with which a program is a worker.
const Argument = "worker"

// Of are the workers of a search, at most n processes. Each is this very program, which has to call [Serve] when its
// argument is Argument.
func Of(ctx context.Context, n int) func(*campaign.Search) (campaign.Pool, error) {
	return func(s *campaign.Search) (campaign.Pool, error) {
		self, err := os.Executable()
		if err != nil {
			return nil, fmt.Errorf("find the own executable: %w", err)
		}
		return Start(ctx, min(n, max(1, s.Total)), s.Story, self, Argument), nil
	}
}
