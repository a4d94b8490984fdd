package child

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

// askInterval is how often a server that isn't ready is asked again.
const askInterval = 30 * time.Millisecond

// AwaitAnswer asks a server for a URL until it answers 200. It fails when one of the processes
// behind it has ended, or when the context does; then it quotes the last lines of the last of them,
// which is the server.
func AwaitAnswer(ctx context.Context, client *http.Client, url string, processes ...*Process) error {
	server, last := processes[len(processes)-1], errors.New("none")
	for {
		answer := get(ctx, client, url)
		if answer == nil {
			return nil
		}
		if ctx.Err() == nil {
			last = answer // what comes of the end of the wait is none
		}
		for _, p := range processes {
			select {
			case <-p.exited:
				return p.Failure()
			default:
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("await %s of %s: %w, and a busy machine may take longer; last answer: %w; its last lines:\n%s",
				url, server.name, context.Cause(ctx), last, server.Tail())
		case <-time.After(askInterval):
		}
	}
}

// get returns nil for the answer 200.
func get(ctx context.Context, client *http.Client, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", response.Status, body)
	}
	return nil
}
