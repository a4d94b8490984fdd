// Package csi is a CSI driver: its identity, and the half on the side of the storage that an
// external-attacher asks. The half on a node is the command in lab/csi/node.
package csi

import (
	"context"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Identity says what a driver is called. Only one with a Controller has its capability.
type Identity struct {
	csi.UnimplementedIdentityServer
	Driver     string
	Controller bool
}

// GetPluginInfo implements csi.IdentityServer.
func (i Identity) GetPluginInfo(context.Context, *csi.GetPluginInfoRequest) (*csi.GetPluginInfoResponse, error) {
	return &csi.GetPluginInfoResponse{Name: i.Driver, VendorVersion: "1"}, nil
}

// GetPluginCapabilities implements csi.IdentityServer.
func (i Identity) GetPluginCapabilities(context.Context, *csi.GetPluginCapabilitiesRequest) (*csi.GetPluginCapabilitiesResponse, error) {
	response := new(csi.GetPluginCapabilitiesResponse)
	if i.Controller {
		response.Capabilities = append(response.Capabilities, &csi.PluginCapability{Type: &csi.PluginCapability_Service_{
			Service: &csi.PluginCapability_Service{Type: csi.PluginCapability_Service_CONTROLLER_SERVICE},
		}})
	}
	return response, nil
}

// Probe implements csi.IdentityServer.
func (Identity) Probe(context.Context, *csi.ProbeRequest) (*csi.ProbeResponse, error) {
	return new(csi.ProbeResponse), nil
}

// Storage attaches volumes to nodes and detaches them. Each call returns when it is done, or won't
// be.
type Storage interface {
	Attach(ctx context.Context, volume, node string) error
	Detach(ctx context.Context, volume, node string) error
}

// NewServer returns a server of the half of a driver that attaches and detaches. A node's ID is its
// name.
func NewServer(driver string, storage Storage) *grpc.Server {
	server := grpc.NewServer()
	csi.RegisterIdentityServer(server, Identity{Driver: driver, Controller: true})
	csi.RegisterControllerServer(server, controller{storage: storage})
	return server
}

type controller struct {
	csi.UnimplementedControllerServer
	storage Storage
}

// ControllerGetCapabilities implements csi.ControllerServer.
func (controller) ControllerGetCapabilities(context.Context, *csi.ControllerGetCapabilitiesRequest) (*csi.ControllerGetCapabilitiesResponse, error) {
	return &csi.ControllerGetCapabilitiesResponse{Capabilities: []*csi.ControllerServiceCapability{{
		Type: &csi.ControllerServiceCapability_Rpc{Rpc: &csi.ControllerServiceCapability_RPC{Type: csi.ControllerServiceCapability_RPC_PUBLISH_UNPUBLISH_VOLUME}},
	}}}, nil
}

// ControllerPublishVolume implements csi.ControllerServer.
func (c controller) ControllerPublishVolume(ctx context.Context, r *csi.ControllerPublishVolumeRequest) (*csi.ControllerPublishVolumeResponse, error) {
	return new(csi.ControllerPublishVolumeResponse), failed(ctx, c.storage.Attach(ctx, r.GetVolumeId(), r.GetNodeId()))
}

// ControllerUnpublishVolume implements csi.ControllerServer.
func (c controller) ControllerUnpublishVolume(ctx context.Context, r *csi.ControllerUnpublishVolumeRequest) (*csi.ControllerUnpublishVolumeResponse, error) {
	return new(csi.ControllerUnpublishVolumeResponse), failed(ctx, c.storage.Detach(ctx, r.GetVolumeId(), r.GetNodeId()))
}

// failed is an error as callers understand it: a call that wasn't answered in time may have been
// carried out, and one that was refused was not.
func failed(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return status.Error(codes.DeadlineExceeded, err.Error())
	}
	return status.Error(codes.Internal, err.Error())
}
