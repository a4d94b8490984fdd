package kubelet

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/fencelab/fencelab/vms/guest/evidence"
)

// requestTimeout bounds one request, so that a kubelet whose cable was cut notices it and dials
// anew once it is back.
const requestTimeout = 3 * time.Second

// Only the fields that this kubelet reads or writes, named as in Kubernetes' own types.
type (
	metadata struct {
		Name              string            `json:"name,omitempty"`
		Namespace         string            `json:"namespace,omitempty"`
		UID               string            `json:"uid,omitempty"`
		Labels            map[string]string `json:"labels,omitempty"`
		Annotations       map[string]string `json:"annotations,omitempty"`
		ResourceVersion   string            `json:"resourceVersion,omitempty"`
		DeletionTimestamp *string           `json:"deletionTimestamp,omitempty"`
		// Grace is how many seconds the processes of an object that is deleted have to stop.
		Grace           *int64           `json:"deletionGracePeriodSeconds,omitempty"`
		OwnerReferences []ownerReference `json:"ownerReferences,omitempty"`
	}
	ownerReference struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
		Name       string `json:"name"`
		UID        string `json:"uid"`
	}
	condition struct {
		Type               string `json:"type"`
		Status             string `json:"status"`
		Reason             string `json:"reason,omitempty"`
		Message            string `json:"message,omitempty"`
		LastHeartbeatTime  string `json:"lastHeartbeatTime,omitempty"`
		LastTransitionTime string `json:"lastTransitionTime,omitempty"`
	}
	nodeStatus struct {
		Conditions  []condition       `json:"conditions,omitempty"`
		Addresses   []address         `json:"addresses,omitempty"`
		Capacity    map[string]string `json:"capacity,omitempty"`
		Allocatable map[string]string `json:"allocatable,omitempty"`
		NodeInfo    *nodeInfo         `json:"nodeInfo,omitempty"`
		// VolumesInUse is nil where nothing is said of volumes.
		VolumesInUse    *[]string        `json:"volumesInUse,omitempty"`
		VolumesAttached []attachedVolume `json:"volumesAttached,omitempty"`
	}
	attachedVolume struct {
		Name string `json:"name"`
	}
	address struct {
		Type    string `json:"type"`
		Address string `json:"address"`
	}
	// nodeInfo has to be complete: the API server requires every string of it.
	nodeInfo struct {
		BootID                  string `json:"bootID"`
		MachineID               string `json:"machineID"`
		SystemUUID              string `json:"systemUUID"`
		KernelVersion           string `json:"kernelVersion"`
		OSImage                 string `json:"osImage"`
		ContainerRuntimeVersion string `json:"containerRuntimeVersion"`
		KubeletVersion          string `json:"kubeletVersion"`
		KubeProxyVersion        string `json:"kubeProxyVersion"`
		OperatingSystem         string `json:"operatingSystem"`
		Architecture            string `json:"architecture"`
	}
	node struct {
		APIVersion string     `json:"apiVersion"`
		Kind       string     `json:"kind"`
		Metadata   metadata   `json:"metadata"`
		Spec       nodeSpec   `json:"spec,omitzero"`
		Status     nodeStatus `json:"status,omitzero"`
	}
	nodeSpec struct {
		ProviderID string `json:"providerID,omitempty"`
	}
	lease struct {
		APIVersion string    `json:"apiVersion"`
		Kind       string    `json:"kind"`
		Metadata   metadata  `json:"metadata"`
		Spec       leaseSpec `json:"spec"`
	}
	leaseSpec struct {
		HolderIdentity       string `json:"holderIdentity"`
		LeaseDurationSeconds int    `json:"leaseDurationSeconds"`
		RenewTime            string `json:"renewTime"`
	}
	pod struct {
		Metadata metadata `json:"metadata"`
		Spec     struct {
			Containers []struct {
				Name  string `json:"name"`
				Image string `json:"image"`
			} `json:"containers"`
		} `json:"spec"`
		Status struct {
			Phase string `json:"phase"`
		} `json:"status"`
	}
	podList struct {
		Items []pod `json:"items"`
	}
)

func (p pod) path() string {
	return "/api/v1/namespaces/" + p.Metadata.Namespace + "/pods/" + p.Metadata.Name
}

// wants reports whether it shall run.
func (p pod) wants() bool {
	return p.Metadata.DeletionTimestamp == nil && p.Status.Phase != "Succeeded" && p.Status.Phase != "Failed"
}

// volume is the name of its volume, "" without one.
func (p pod) volume() string { return p.Metadata.Annotations[volumeAnnotation] }

// statusError is an answer other than success.
type statusError struct {
	code int
	text string
}

func (e *statusError) Error() string { return e.text }

func isStatus(err error, code int) bool {
	var s *statusError
	return errors.As(err, &s) && s.code == code
}

type api struct {
	name, server, token string
	client              *http.Client
}

// newAPI is the way of a kubelet to the API server, which leads through what wrap makes of it.
func newAPI(name string, config *evidence.Kubelet, wrap func(http.RoundTripper) http.RoundTripper) (*api, error) {
	roots := x509.NewCertPool()
	if config.CA != "" && !roots.AppendCertsFromPEM([]byte(config.CA)) {
		return nil, errors.New("read the API server's CA: no certificate in it")
	}
	var transport http.RoundTripper = &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: config.ServerName},
		// HTTP/1.1: a dead HTTP/2 connection would be reused until its pings fail.
		TLSNextProto: map[string]func(string, *tls.Conn) http.RoundTripper{},
	}
	if wrap != nil {
		transport = wrap(transport)
	}
	return &api{
		name:   name,
		server: strings.TrimSuffix(config.Server, "/"),
		token:  config.Token,
		client: &http.Client{Timeout: requestTimeout, Transport: transport},
	}, nil
}

// do sends in as JSON and decodes the answer into out; either may be nil.
func (a *api) do(ctx context.Context, method, path, contentType string, in, out any) error {
	var body io.Reader
	if in != nil {
		text, err := json.Marshal(in)
		if err != nil {
			return fmt.Errorf("%s %s: %w", method, path, err)
		}
		body = bytes.NewReader(text)
	}
	request, err := http.NewRequestWithContext(ctx, method, a.server+path, body)
	if err != nil {
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	request.Header.Set("Authorization", "Bearer "+a.token)
	request.Header.Set("User-Agent", a.name) // the API server takes it for the manager of what is written
	request.Header.Set("Accept", "application/json")
	if in != nil {
		request.Header.Set("Content-Type", contentType)
	}
	response, err := a.client.Do(request)
	if err != nil {
		return err // it names method and address
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		a.client.CloseIdleConnections()
		return fmt.Errorf("%s %s: read answer: %w", method, path, err)
	}
	if response.StatusCode/100 != 2 {
		return &statusError{response.StatusCode, fmt.Sprintf("%s %s: %s: %.300s", method, path, response.Status, text)}
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(text, out); err != nil {
		return fmt.Errorf("%s %s: decode answer: %w", method, path, err)
	}
	return nil
}

const (
	plainJSON = "application/json"
	strategic = "application/strategic-merge-patch+json"
)

func (a *api) get(ctx context.Context, path string, out any) error {
	return a.do(ctx, http.MethodGet, path, "", nil, out)
}
func (a *api) create(ctx context.Context, path string, in, out any) error {
	return a.do(ctx, http.MethodPost, path, plainJSON, in, out)
}
func (a *api) update(ctx context.Context, path string, in, out any) error {
	return a.do(ctx, http.MethodPut, path, plainJSON, in, out)
}
func (a *api) patch(ctx context.Context, path string, in any) error {
	return a.do(ctx, http.MethodPatch, path, strategic, in, nil)
}
func (a *api) remove(ctx context.Context, path string, options any) error {
	return a.do(ctx, http.MethodDelete, path, plainJSON, options, nil)
}
