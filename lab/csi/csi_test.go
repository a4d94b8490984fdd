package csi

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
)

// storage answers as the name of the node says.
type storage struct{ asked []string }

func (s *storage) Attach(ctx context.Context, volume, node string) error {
	s.asked = append(s.asked, "attach "+volume+" "+node)
	switch node {
	case "refused":
		return errors.New("no")
	case "silent":
		<-ctx.Done()
		return context.Cause(ctx)
	}
	return nil
}

func (s *storage) Detach(_ context.Context, volume, node string) error {
	s.asked = append(s.asked, "detach "+volume+" "+node)
	return nil
}

// TestController: an external-attacher can distinguish a call that was refused from one that wasn't
// answered in time.
func TestController(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "csi.sock")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	behind := new(storage)
	server := NewServer("a.driver", behind)
	go func() { _ = server.Serve(listener) }()
	defer server.Stop()
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx := t.Context()
	info, err := csi.NewIdentityClient(conn).GetPluginInfo(ctx, new(csi.GetPluginInfoRequest))
	if err != nil || info.Name != "a.driver" {
		t.Errorf("it is called %v: %v", info, err)
	}
	client := csi.NewControllerClient(conn)
	for node, want := range map[string]codes.Code{"taken": codes.OK, "refused": codes.Internal, "silent": codes.DeadlineExceeded} {
		ctx, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
		_, err := client.ControllerPublishVolume(ctx, &csi.ControllerPublishVolumeRequest{VolumeId: "data", NodeId: node})
		cancel()
		if status.Code(err) != want {
			t.Errorf("attach to %s: %v, want %v", node, err, want)
		}
	}
	if _, err := client.ControllerUnpublishVolume(ctx, &csi.ControllerUnpublishVolumeRequest{VolumeId: "data", NodeId: "taken"}); err != nil {
		t.Error(err)
	}
	if got := strings.Join(behind.asked, ", "); !strings.HasSuffix(got, "detach data taken") || strings.Count(got, "attach") != 3 {
		t.Errorf("the storage was asked to %s", got)
	}
}
