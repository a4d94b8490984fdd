package ironic

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack/baremetal/noauth"
	"github.com/gophercloud/gophercloud/v2/openstack/baremetal/v1/nodes"
)

// Host is one whose BMC Ironic is to own.
type Host struct {
	// Name is the name of its node.
	Name string
	// Address is the URL of its BMC, System the path of its ComputerSystem.
	Address, System    string
	Username, Password string
}

// adoptVersion is the oldest version of the API with all that is asked here, of Ironic 6.2.
const adoptVersion = "1.27"

// tick is how often a change of a node is looked for.
const tick = 100 * time.Millisecond

// Adopt enrolls a host that runs already with the Ironic at an endpoint, and returns when that
// owns its power. Nothing is deployed, and the host goes on as it is.
func Adopt(ctx context.Context, endpoint string, h Host) error {
	client, err := connect(endpoint)
	if err != nil {
		return err
	}
	_, err = nodes.Create(ctx, client, nodes.CreateOpts{Name: h.Name, Driver: "redfish", DriverInfo: map[string]any{
		"redfish_address": h.Address, "redfish_system_id": h.System, "redfish_username": h.Username, "redfish_password": h.Password, "redfish_verify_ca": false,
	}}).Extract()
	if err != nil {
		return fmt.Errorf("enroll %s in Ironic: %w", h.Name, err)
	}
	for _, step := range []struct {
		verb nodes.TargetProvisionState
		to   nodes.ProvisionState
	}{{nodes.TargetManage, nodes.Manageable}, {nodes.TargetAdopt, nodes.Active}} {
		if err := provision(ctx, client, h.Name, step.verb, step.to); err != nil {
			return fmt.Errorf("%s %s in Ironic: %w", step.verb, h.Name, err)
		}
	}
	return nil
}

// NameOf is the name of the node with a UUID.
func NameOf(ctx context.Context, endpoint, uuid string) (string, error) {
	client, err := connect(endpoint)
	if err != nil {
		return "", err
	}
	node, err := nodes.Get(ctx, client, uuid).Extract()
	if err != nil {
		return "", fmt.Errorf("find the node %s in Ironic: %w", uuid, err)
	}
	return node.Name, nil
}

// provision asks for a change of the provision state, and waits for it.
func provision(ctx context.Context, client *gophercloud.ServiceClient, name string, verb nodes.TargetProvisionState, to nodes.ProvisionState) error {
	for {
		err := nodes.ChangeProvisionState(ctx, client, name, nodes.ProvisionStateOpts{Target: verb}).ExtractErr()
		if err == nil {
			break
		}
		if !gophercloud.ResponseCodeIs(err, http.StatusConflict) { // the lock of a look at its power
			return err
		}
		if err := pause(ctx); err != nil {
			return err
		}
	}
	for {
		node, err := nodes.Get(ctx, client, name).Extract()
		switch {
		case err != nil:
			return err
		case node.ProvisionState == string(to) && node.Reservation == "":
			return nil
		case node.TargetProvisionState == "" && node.Reservation == "":
			return fmt.Errorf("it has become %s: %s", node.ProvisionState, node.LastError)
		}
		if err := pause(ctx); err != nil {
			return err
		}
	}
}

// Release has the Ironic at an endpoint forget hosts, and leave them as they are. One that it
// doesn't know is fine.
func Release(ctx context.Context, endpoint string, names ...string) error {
	client, err := connect(endpoint)
	if err != nil {
		return err
	}
	var errs []error
	for _, name := range names {
		for {
			// In maintenance Ironic doesn't look at its power, and any provision state may be
			// left.
			err = nodes.SetMaintenance(ctx, client, name, nodes.MaintenanceOpts{Reason: "its host is taken away"}).ExtractErr()
			if err == nil {
				err = nodes.Delete(ctx, client, name).ExtractErr()
			}
			if !gophercloud.ResponseCodeIs(err, http.StatusConflict) || pause(ctx) != nil {
				break
			}
		}
		if err != nil && !gophercloud.ResponseCodeIs(err, http.StatusNotFound) {
			errs = append(errs, fmt.Errorf("remove %s from Ironic: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

func connect(endpoint string) (*gophercloud.ServiceClient, error) {
	client, err := noauth.NewBareMetalNoAuth(noauth.EndpointOpts{IronicEndpoint: strings.TrimSuffix(endpoint, "/") + "/v1"})
	if err != nil {
		return nil, fmt.Errorf("open Ironic: %w", err)
	}
	client.Microversion = adoptVersion
	return client, nil
}

func pause(ctx context.Context) error {
	select {
	case <-time.After(tick):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
