// Command node is the half of a CSI driver that a real node runs: it mounts and unmounts the volume
// for the kubelet, and registers itself there. vms/assets.sh builds it as a static program, and
// vms/node/build.sh puts it on the node's disk, where PID 1 starts it.
//
// Usage: node DRIVER NODE
package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/fencelab/fencelab/lab/csi"
	"github.com/fencelab/fencelab/vms/guest/evidence"
)

// registry is where the kubelet looks for the sockets of its plug-ins.
const registry = "/var/lib/kubelet/plugins_registry"

func main() {
	if err := run(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintf(os.Stderr, "csi-node: %v\n", err)
		os.Exit(1)
	}
}

func run(driver, name string) error {
	if err := os.MkdirAll(registry, 0o750); err != nil {
		return err
	}
	socket := filepath.Join(registry, driver+".sock")
	if err := os.Remove(socket); err != nil && !errors.Is(err, fs.ErrNotExist) { // an earlier boot's
		return err
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	server := grpc.NewServer()
	spec.RegisterIdentityServer(server, csi.Identity{Driver: driver})
	spec.RegisterNodeServer(server, node{name: name})
	registration.RegisterRegistrationServer(server, registrar{driver: driver, socket: socket})
	return server.Serve(listener)
}

// registrar registers the driver with the kubelet.
type registrar struct {
	registration.UnimplementedRegistrationServer
	driver, socket string
}

// GetInfo implements registration.RegistrationServer.
func (r registrar) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{Type: registration.CSIPlugin, Name: r.driver, Endpoint: r.socket, SupportedVersions: []string{"1.0.0"}}, nil
}

// NotifyRegistrationStatus implements registration.RegistrationServer.
func (r registrar) NotifyRegistrationStatus(_ context.Context, s *registration.RegistrationStatus) (*registration.RegistrationStatusResponse, error) {
	fmt.Printf("csi-node: registered: %t %s\n", s.GetPluginRegistered(), s.GetError())
	return new(registration.RegistrationStatusResponse), nil
}

// node mounts the volume once for the node, and binds that mount to each Pod.
type node struct {
	spec.UnimplementedNodeServer
	name string
}

// NodeGetInfo implements spec.NodeServer.
func (n node) NodeGetInfo(context.Context, *spec.NodeGetInfoRequest) (*spec.NodeGetInfoResponse, error) {
	return &spec.NodeGetInfoResponse{NodeId: n.name}, nil
}

// NodeGetCapabilities implements spec.NodeServer.
func (node) NodeGetCapabilities(context.Context, *spec.NodeGetCapabilitiesRequest) (*spec.NodeGetCapabilitiesResponse, error) {
	return &spec.NodeGetCapabilitiesResponse{Capabilities: []*spec.NodeServiceCapability{{
		Type: &spec.NodeServiceCapability_Rpc{Rpc: &spec.NodeServiceCapability_RPC{Type: spec.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME}},
	}}}, nil
}

// options of a mount: one attachment for all users, and nothing is cached, so that the storage sees
// each write.
const options = "trans=unix,version=9p2000.L,access=any,cache=none,msize=16384"

// NodeStageVolume implements spec.NodeServer.
func (node) NodeStageVolume(_ context.Context, r *spec.NodeStageVolumeRequest) (*spec.NodeStageVolumeResponse, error) {
	return new(spec.NodeStageVolumeResponse), mount(evidence.StorageSocket, r.GetStagingTargetPath(), "9p", 0, options)
}

// NodeUnstageVolume implements spec.NodeServer.
func (node) NodeUnstageVolume(_ context.Context, r *spec.NodeUnstageVolumeRequest) (*spec.NodeUnstageVolumeResponse, error) {
	return new(spec.NodeUnstageVolumeResponse), unmount(r.GetStagingTargetPath())
}

// NodePublishVolume implements spec.NodeServer.
func (node) NodePublishVolume(_ context.Context, r *spec.NodePublishVolumeRequest) (*spec.NodePublishVolumeResponse, error) {
	return new(spec.NodePublishVolumeResponse), mount(r.GetStagingTargetPath(), r.GetTargetPath(), "", unix.MS_BIND, "")
}

// NodeUnpublishVolume implements spec.NodeServer.
func (node) NodeUnpublishVolume(_ context.Context, r *spec.NodeUnpublishVolumeRequest) (*spec.NodeUnpublishVolumeResponse, error) {
	err := unmount(r.GetTargetPath())
	if err == nil {
		if err = os.Remove(r.GetTargetPath()); errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
	}
	return new(spec.NodeUnpublishVolumeResponse), err
}

// mount mounts something, unless something is mounted there already.
func mount(source, target, kind string, flags uintptr, data string) error {
	if err := os.MkdirAll(target, 0o750); err != nil {
		return status.Error(codes.Internal, err.Error())
	}
	is, err := mounted(target)
	if err == nil && !is {
		err = unix.Mount(source, target, kind, flags, data)
	}
	if err != nil {
		return status.Errorf(codes.Internal, "mount %s on %s: %v", source, target, err)
	}
	return nil
}

func unmount(target string) error {
	is, err := mounted(target)
	if err == nil && is {
		err = unix.Unmount(target, 0)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return status.Errorf(codes.Internal, "unmount %s: %v", target, err)
	}
	return nil
}

// mounted reports whether something is mounted at a path.
func mounted(path string) (bool, error) {
	var about unix.Statx_t
	err := unix.Statx(unix.AT_FDCWD, path, unix.AT_SYMLINK_NOFOLLOW, 0, &about)
	return about.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0, err
}
