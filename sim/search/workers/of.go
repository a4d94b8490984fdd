package workers

import (
	"context"
	"fmt"
	"os"

	"github.com/fencelab/fencelab/scenarios/campaign"
)

// Argument makes a program run as a worker.
const Argument = "worker"

// Of returns a function that starts the workers of a search, at most n processes. Each runs this
// very program, which must call [Serve] when its argument is Argument.
func Of(ctx context.Context, n int) func(*campaign.Search) (campaign.Pool, error) {
	return func(s *campaign.Search) (campaign.Pool, error) {
		self, err := os.Executable()
		if err != nil {
			return nil, fmt.Errorf("find the own executable: %w", err)
		}
		return Start(ctx, min(n, max(1, s.Total)), s.Story, self, Argument), nil
	}
}
