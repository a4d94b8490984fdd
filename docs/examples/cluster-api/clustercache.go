package clusterapi

import (
	"context"
	"sync"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// oneCluster is the ClusterCache of a cluster that manages itself: the workload cluster's
// API is the management cluster's, and so are the clients of it and their cache. It says
// that it is connected also while the API server is away: what it would report of that,
// after a while, are conditions.
type oneCluster struct {
	mgr     manager.Manager
	mu      sync.Mutex
	watched map[string]bool
}

var _ clustercache.ClusterCache = (*oneCluster)(nil)

// GetClient returns the client whose reads are cached.
func (o *oneCluster) GetClient(context.Context, client.ObjectKey) (client.Client, error) {
	return constants{o.mgr.GetClient()}, nil
}

// GetReader returns it as well.
func (o *oneCluster) GetReader(context.Context, client.ObjectKey) (client.Reader, error) {
	return constants{o.mgr.GetClient()}, nil
}

// GetUncachedClient has no callers here.
func (o *oneCluster) GetUncachedClient(context.Context, client.ObjectKey) (client.Client, error) {
	return nil, clustercache.ErrClusterNotConnected
}

// GetRESTConfig has no callers here.
func (o *oneCluster) GetRESTConfig(context.Context, client.ObjectKey) (*rest.Config, error) {
	return nil, clustercache.ErrClusterNotConnected
}

// Watch adds a watch once for each name.
func (o *oneCluster) Watch(_ context.Context, _ client.ObjectKey, watcher clustercache.Watcher) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.watched[watcher.Name()] {
		return nil
	}
	if err := watcher.Watch(o.mgr.GetCache()); err != nil {
		return err
	}
	if o.watched == nil {
		o.watched = make(map[string]bool)
	}
	o.watched[watcher.Name()] = true
	return nil
}

// GetHealthCheckingState says that all is well.
func (o *oneCluster) GetHealthCheckingState(context.Context, client.ObjectKey) clustercache.HealthCheckingState {
	return clustercache.HealthCheckingState{LastProbeTime: time.Now(), LastProbeSuccessTime: time.Now()}
}

// GetClusterSource returns a source without events.
func (o *oneCluster) GetClusterSource(string, func(context.Context, client.Object) []reconcile.Request, ...clustercache.GetClusterSourceOption) source.Source {
	return source.Func(func(context.Context, workqueue.TypedRateLimitingInterface[reconcile.Request]) error { return nil })
}
