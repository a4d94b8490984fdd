// Command infrastructure provides the surroundings of Cluster API's unmodified manager in
// fencelab's lab: a provider of infrastructure for the hosts, one of remediation, and the
// kubeconfig of the workload cluster.
//
//	infrastructure                       runs the providers; PORT says where /readyz is
//	infrastructure connect COMMAND...    becomes the command, to which the workload cluster is where KUBECONFIG leads
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/fencelab/fencelab/controllers"

	clusterapi "example.com/cluster-api"
)

// topology is the name of the cluster that the Machines of every topology belong to.
const topology = "fencelab"

func main() {
	ctrl.SetLogger(klog.Background())
	var err error
	switch {
	case len(os.Args) == 1:
		err = run(ctrl.SetupSignalHandler())
	case os.Args[1] == "connect" && len(os.Args) > 2:
		err = connect(os.Args[2:])
	default:
		err = errors.New("usage: infrastructure [connect COMMAND...]")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "infrastructure:", err)
		os.Exit(1)
	}
}

// run runs the providers.
func run(ctx context.Context) error {
	set, err := controllers.NewSet(clusterapi.Module())
	if err != nil {
		return err
	}
	config, err := ctrl.GetConfig()
	if err != nil {
		return err
	}
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme:                 set.Scheme(),
		Metrics:                server.Options{BindAddress: "0"},
		HealthProbeBindAddress: "127.0.0.1:" + os.Getenv("PORT"),
	})
	if err != nil {
		return err
	}
	if err := clusterapi.SetUpInfrastructure(mgr); err != nil {
		return err
	}
	return mgr.Start(ctx)
}

// connect makes the kubeconfig of the workload cluster, which is the management cluster, and
// becomes the command. What it asks either for goes one way, by which fencelab knows who asks.
func connect(command []string) error {
	kubeconfig, err := os.ReadFile(os.Getenv("KUBECONFIG"))
	if err != nil {
		return err
	}
	config, err := ctrl.GetConfig()
	if err != nil {
		return err
	}
	writer, err := client.New(config, client.Options{})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: os.Getenv("NAMESPACE"), Name: topology + "-kubeconfig",
			Labels: map[string]string{clusterv1.ClusterNameLabel: topology},
		},
		Type: clusterv1.ClusterSecretType,
		Data: map[string][]byte{"value": kubeconfig},
	}
	// An earlier life's leads to a gate that is shut.
	if err := writer.Delete(ctx, secret.DeepCopy()); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete the Secret %s: %w", secret.Name, err)
	}
	if err := writer.Create(ctx, secret); err != nil {
		return fmt.Errorf("create the Secret %s: %w", secret.Name, err)
	}
	return syscall.Exec(command[0], command, os.Environ())
}
