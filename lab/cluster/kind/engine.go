package kind

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"sigs.k8s.io/kind/pkg/apis/config/defaults"
	kindcluster "sigs.k8s.io/kind/pkg/cluster"

	"github.com/fencelab/fencelab/lab/cluster"
)

// askTimeout limits how long a daemon, or a registry, may take for a simple answer.
const askTimeout = 20 * time.Second

// engine runs containers: Docker or Podman.
type engine struct {
	title    string
	command  string
	env      []string // beside ours
	network  string   // the variable that names the network for kind to make
	registry string   // before the name of an image, to ask a registry for it
	provider func() kindcluster.ProviderOption
	own      *daemon // nil: the machine's
}

// engines lists the container engines that a machine can have.
var engines = []*engine{
	{title: "Docker", command: "docker", network: "KIND_EXPERIMENTAL_DOCKER_NETWORK", provider: kindcluster.ProviderWithDocker},
	{title: "Podman", command: "podman", network: "KIND_EXPERIMENTAL_PODMAN_NETWORK", provider: kindcluster.ProviderWithPodman, registry: "docker://"},
}

// findEngine is the one of the machine that answers, but for Podman where a Docker of our own can
// be started: Podman is no daemon, and answers also where it can't run a node. None means our own.
// The error says why there is nothing at all.
func findEngine(ctx context.Context) (*engine, error) {
	docker, podman := engines[0], engines[1]
	dockerErr := docker.answers(ctx)
	if dockerErr == nil {
		return docker, nil
	}
	ownErr := canStartDaemon()
	if ownErr == nil {
		return nil, nil
	}
	podmanErr := podman.answers(ctx)
	if podmanErr == nil {
		return podman, nil
	}
	return nil, errors.Join(dockerErr, podmanErr, ownErr)
}

// answers is nil if the engine can be used.
func (e *engine) answers(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	if _, err := exec.LookPath(e.command); err != nil {
		return fmt.Errorf("%s: %w", e.title, err)
	}
	_, err := e.run(ctx, "ps", "--quiet")
	return err
}

// run runs a command of the engine's, and returns what it says. The error has that, too.
func (e *engine) run(ctx context.Context, args ...string) (string, error) {
	return execute(ctx, e.environment(), e.command, args...)
}

func execute(ctx context.Context, env []string, command string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, command, args...)
	cmd.Env = env
	output, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%s: %w: %s", strings.Join(cmd.Args, " "), cmp.Or(context.Cause(ctx), err), tail(string(output)))
	}
	return string(output), err
}

// tail is the end of what a command says, where the reason is.
func tail(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-30):], "\n")
}

// environment is that of the engine's commands.
func (e *engine) environment() []string { return append(os.Environ(), e.env...) }

// environments is held by whoever has changed that of this process.
var environments sync.Mutex

// withEnvironment does something that takes its settings from the environment of this process, as
// kind does: which daemon to use, and a network for this cluster alone, since kind would leave one
// that all clusters share.
func (e *engine) withEnvironment(do func() error) error {
	environments.Lock()
	defer environments.Unlock()
	for _, entry := range append([]string{e.network + "=" + name()}, e.env...) {
		variable, value, _ := strings.Cut(entry, "=")
		before, was := os.LookupEnv(variable)
		if err := os.Setenv(variable, value); err != nil {
			return err
		}
		defer func() {
			if was {
				os.Setenv(variable, before)
			} else {
				os.Unsetenv(variable)
			}
		}()
	}
	return do()
}

// image is that of a node.
type image struct {
	name string
	ours bool
}

// repository is the name of our image. Its tag is a digest of its content.
const repository = "localhost/fencelab-kind"

// image has the engine have one: what kind publishes if it is there, else ours if that was built,
// else what a registry has.
func (e *engine) image(ctx context.Context, o Options) (image, error) {
	if e.own == nil && e.has(ctx, defaults.Image) {
		return image{name: defaults.Image}, nil
	}
	archive, err := filepath.EvalSymlinks(Archive())
	if err != nil {
		if pullErr := e.canPull(ctx); pullErr != nil {
			return image{}, fmt.Errorf("the image of a node: %w; %w; %s", err, pullErr, buildIt)
		}
		o.logf("pulling kind's own image %s, which takes minutes", defaults.Image)
		return image{name: defaults.Image}, nil
	}
	ours := repository + ":" + strings.TrimSuffix(filepath.Base(archive), ".tar")
	if e.has(ctx, ours) {
		return image{ours, true}, nil
	}
	o.logf("loading the node's image into %s", e.title)
	_, err = e.run(ctx, "import", "--change", `ENTRYPOINT ["/usr/local/bin/entrypoint", "/sbin/init"]`, "--change", "ENV container=docker", archive, ours)
	return image{ours, true}, err
}

func (e *engine) has(ctx context.Context, image string) bool {
	_, err := e.run(ctx, "image", "inspect", image)
	return err == nil
}

// canPull is nil if a registry has the published image.
func (e *engine) canPull(ctx context.Context) error {
	if e.own != nil {
		return errors.New("the lab's own Docker daemon cannot reach a registry")
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	_, err := e.run(ctx, "manifest", "inspect", e.registry+defaults.Image)
	return err
}

// Archive is the image that build.sh made.
func Archive() string { return filepath.Join(directory(), "node.tar") }

// directory is build.sh's.
func directory() string { return filepath.Join(filepath.Dir(cluster.DefaultBin()), "kind") }
