package tidy

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
)

// layer says what the packages of a directory and below may import besides the standard library and
// themselves. A deeper directory's own layer replaces it.
type layer struct {
	dir string
	may []string // import paths and all below them, but with "/." at the end that path alone; "./" stands for the module
	why string
}

var (
	strict     = []string{"sigs.k8s.io/json"} // whose names are case-sensitive
	anyYAML    = []string{"go.yaml.in/yaml/v3", "sigs.k8s.io/yaml"}
	kubernetes = []string{"k8s.io/api", "k8s.io/apimachinery", "sigs.k8s.io/json"}
	capi       = []string{"sigs.k8s.io/cluster-api/api"}
	client     = []string{"sigs.k8s.io/controller-runtime/pkg/client"}
	reconciler = []string{"sigs.k8s.io/controller-runtime/pkg/reconcile", "k8s.io/utils/clock"}
	// what merges patches and configurations, as the real server does
	merging = []string{"k8s.io/apiextensions-apiserver/pkg/apis", "k8s.io/client-go/applyconfigurations", "k8s.io/client-go/kubernetes/scheme", "k8s.io/kube-openapi/pkg",
		"sigs.k8s.io/structured-merge-diff/v6", "sigs.k8s.io/yaml", "gopkg.in/evanphx/json-patch.v4", "k8s.io/utils/ptr"}
	events      = []string{"k8s.io/client-go/tools/events", "k8s.io/client-go/tools/record"}
	everyClient = []string{"k8s.io/client-go", "k8s.io/apiextensions-apiserver/pkg/apis", "sigs.k8s.io/controller-runtime", "k8s.io/utils", "github.com/go-logr/logr", "k8s.io/klog/v2"}
	system      = []string{"golang.org/x/sys/unix"}
	testTools   = []string{"github.com/google/go-cmp", "github.com/onsi/ginkgo/v2", "github.com/onsi/gomega", "github.com/rogpeppe/go-internal",
		"github.com/santhosh-tekuri/jsonschema/v6", "k8s.io/utils/clock/testing", "sigs.k8s.io/controller-runtime/pkg/client/fake"}
)

const (
	gophercloud   = "github.com/gophercloud/gophercloud/v2"
	whyController = "a controller never knows that it is tested, and acts only through a client and a clock that both worlds provide"
	whyScenarios  = "the same scenario runs in both worlds, so the code that runs and judges it knows neither"
	whyCI         = "the lab is an independent witness: it and the simulator don't know each other, and share no more than the model of a host"
)

var layers = []layer{
	{".", []string{"./program"}, "the program is the command without any controllers of others"},
	{"program", []string{"./cmd/.", "./controllers/.", "./scenarios/exit", "./lab/container", "./vms/keeper"}, "a program is its command, its controllers, and what has to come before that"},
	{"cmd", []string{"./", "github.com/spf13/cobra", "github.com/spf13/pflag", "github.com/prometheus/client_golang/prometheus"}, "the command joins everything"},
	{"cmd/bisect", []string{"./vms/keeper"}, "a history is searched whatever fails in it"},
	{"cmd/oncluster", slices.Concat([]string{"./lab/cluster", "./vms/keeper"}, kubernetes, everyClient), "a Job has an image and files in it, whatever they are"},
	{"cmd/store", []string{"./cmd/store", "github.com/aws/aws-sdk-go-v2/aws", "github.com/aws/smithy-go/encoding/httpbinding"}, "a store keeps files, whatever is in them"},
	{"cmd/incluster", []string{"./controllers/.", "./controllers/manifests", "./onhost", "./scenarios/exit", "github.com/spf13/cobra"}, "who runs the controllers in a cluster has no world to test them in"},

	{"scenarios", []string{"./scenarios/history", "./scenarios/invariant", "./scenarios/phrase", "sigs.k8s.io/yaml"}, whyScenarios},
	{"scenarios/catalog", nil, "the stories that come with fencelab are files, and nobody's code"},
	{"scenarios/file", []string{"./scenarios/.", "./scenarios/catalog", "./scenarios/guarantee", "./scenarios/history", "./scenarios/leads", "./scenarios/phrase", "./scenarios/version", "go.yaml.in/yaml/v3"}, "to read a scenario nobody has to play it"},
	{"scenarios/play", []string{"./scenarios/.", "./scenarios/exit", "./scenarios/history", "./scenarios/guarantee", "./scenarios/invariant", "./scenarios/leads", "./scenarios/phrase"}, whyScenarios},
	{"scenarios/version", nil, "what the program was built from is the same wherever it is asked"},
	{"scenarios/campaign", []string{"./scenarios/.", "./scenarios/exit", "./scenarios/history", "./scenarios/invariant", "./scenarios/leads", "./scenarios/phrase", "./scenarios/play", "./scenarios/version"},
		"to play many is to play one often, whatever the world, and whoever takes over what came of it"},
	{"scenarios/campaign/pool", []string{"./scenarios/.", "./scenarios/campaign"}, "a pool plays what it is given, and knows no world"},
	{"scenarios/campaign/shard", []string{"./scenarios/.", "./scenarios/campaign/.", "./scenarios/exit", "./scenarios/invariant", "./scenarios/phrase"}, "blobs are merged wherever they were played"},
	{"scenarios/exit", nil, "whoever ends with a code need not know what came of what"},
	{"scenarios/report", []string{"./scenarios", "golang.org/x/term"}, "a report is of outcomes, whatever world they come from"},
	{"scenarios/history", nil, "the history is the leaf that everything shares"},
	{"scenarios/phrase", nil, "how to put something depends on nothing that is said"},
	{"scenarios/invariant", []string{"./scenarios/history"}, "an invariant judges recorded events and nothing else"},
	{"scenarios/leads", []string{"./scenarios/history", "./scenarios/invariant", "./scenarios/phrase"}, "to compare two histories nothing has to be played"},
	{"scenarios/guarantee", []string{"./scenarios/history", "./scenarios/invariant", "./scenarios/phrase"}, "a guarantee judges recorded events and nothing else"},
	{"scenarios/page", []string{"./scenarios/.", "./scenarios/history", "./scenarios/guarantee", "./scenarios/invariant"}, "a page is drawn of a report, wherever it comes from"},
	{"scenarios/backendtest", []string{"./scenarios"}, "the contract of a Backend fits every Backend"},
	{"scenarios/objects", slices.Concat([]string{"./scenarios", "./controllers", "./fakebmc/.", "k8s.io/apiextensions-apiserver/pkg/apis", "k8s.io/client-go/util/jsonpath"}, kubernetes, capi, client),
		"it translates between scenarios and API objects, for both worlds alike"},

	{"controllers", slices.Concat([]string{"./controllers"}, kubernetes, capi, everyClient, anyYAML, system), whyController},
	{"controllers/api", slices.Concat([]string{"./controllers/api"}, kubernetes, capi, client, anyYAML), "the API's types and words depend on no behaviour"},
	{"controllers/api/hold", slices.Concat([]string{"./controllers/api"}, kubernetes, client), whyController},
	{"controllers/*", slices.Concat([]string{"./controllers/api", "./controllers/api/hold"}, kubernetes, capi, client, reconciler, events), whyController},

	{"controllers/reboot/ironic", slices.Concat([]string{"./controllers/api", "./controllers/reboot", gophercloud}, kubernetes, client), "power through Ironic is one way to command it, and " + whyController},
	{"controllers/processtest", slices.Concat([]string{"./controllers/."}, kubernetes, client, reconciler), "the contract of processes fits whatever runs them"},
	{"onhost", slices.Concat([]string{"./controllers", "./front"}, kubernetes, capi, everyClient, anyYAML, system),
		"what a real host grants its agents, which meet hostile clients as BMCs do"},

	{"sim", slices.Concat([]string{"./scenarios", "./controllers", "./sim", "./fakebmc/.", "./fakebmc/redfish"}, kubernetes, capi, everyClient),
		"the simulator needs no real API server, VM or network, and " + whyCI},
	{"sim/search/workers", []string{"./scenarios", "./sim"}, "a worker plays schedules, whoever starts it"},
	{"sim/search/jobs", []string{"./scenarios", "./sim"}, "a job is played by whoever has the campaign"},
	{"fencetest", slices.Concat([]string{"./"}, anyYAML), "it joins for a test what the command joins for a user"},
	{"docs/examples/cluster-api", slices.Concat([]string{"./fencetest", "./controllers/.", "./controllers/api", "./scenarios", "sigs.k8s.io/cluster-api"}, kubernetes, everyClient, anyYAML),
		"Cluster API's controllers are set up as it does, with what any other module can use"},
	{"docs/examples/*", slices.Concat([]string{"./fencetest", "./controllers/."}, []string{"./controllers/api"}, kubernetes, client, reconciler), "an example uses what any other module can use"},
	{"docs/ci", nil, "a pipeline is files, and no code of anybody's"},
	{"docs/systems/*", nil, "a system under test knows nothing of fencelab"},

	{"sim/model", []string{"./scenarios/history", "./fakebmc/."}, "the model of a host is the same in every world, and has neither time nor thread of its own"},
	{"sim/stall", nil, "who looks after what runs knows the clock of the machine and nothing else"},
	{"sim/bubble", nil, "whatever runs in a bubble, it is only about goroutines and time"},
	{"sim/steps", []string{"./scenarios/.", "./sim/model"}, "what can be done next is data: it knows no world that does it"},
	{"sim/kube", slices.Concat([]string{"./sim/kube/codec"}, kubernetes, client, merging), "an API store knows objects, not fencing"},
	{"sim/kube/codec", kubernetes, "what encoding does to a value is the same whoever stores it"},
	{"sim/kube/kubetest", slices.Concat([]string{"./sim/kube", "./controllers/api", "./controllers/manifests"}, kubernetes, client, capi, merging),
		"the suite runs on the store and on a real API server alike"},

	{"fakebmc", strict, "the core of a BMC stands alone, so that it can serve any test: its faces know it, and it knows none of them"},
	{"fakebmc/*", []string{"./fakebmc/.", "./fakebmc/wall"}, "a face of a BMC knows the core and not the other faces"},
	{"fakebmc/ipmi", []string{"./fakebmc/.", "./front", "./fakebmc/wall"}, "a face of a BMC knows the core and not the other faces"},
	{"fakebmc/redfish", slices.Concat([]string{"./fakebmc/.", "./front", "./fakebmc/wall"}, strict), "a face of a BMC knows the core and not the other faces"},
	{"fakebmc/admin", []string{"./fakebmc/.", "./front"}, "the admin API is about BMCs, whatever their faces are"},
	{"front", nil, "how a hostile client is met has nothing to do with BMCs"},
	{"fakebmc/fleet", slices.Concat([]string{"./fakebmc", "./front"}, anyYAML), "a fleet joins the BMCs, their hosts and their faces, and nothing else"},
	{"fakebmc/bmctest", []string{"./fakebmc"}, "a test has one BMC with all its faces"},
	{"fakebmc/libvirt", []string{"./fakebmc/fleet", "./vms/keeper", "./fakebmc/.", "libvirt.org/go", "github.com/beevik/etree"}, "domains are one kind of machine behind a BMC"},
	{"vms", slices.Concat([]string{"./vms", "libvirt.org/go"}, system), "the VMs know libvirt, nothing of Kubernetes, and nobody who uses them"},
	{"vms/network", []string{"gvisor.dev/gvisor/pkg"}, "the network carries frames, whoever sends them"},
	{"vms/guest", slices.Concat([]string{"./vms/guest"}, system), "the guest is PID 1 in an initramfs: small, and a witness of its own"},
	{"vms/keeper", nil, "whoever starts something can afford a keeper that depends on nothing"},

	{"lab/machine", nil, "whoever waits measures the machine first, and depends on nothing for that"},
	{"lab/device", system, "a network device is the same whatever passes it"},
	{"lab/slots", []string{"./lab/machine"}, "whatever is heavy takes slots, and they know none of it"},
	{"ci/clients", slices.Concat([]string{"./lab/device", "./lab/machine", "./fakebmc", "github.com/stmcginnis/gofish", "github.com/bougou/go-ipmi/pkg"}, system), "clients of BMCs know hosts in memory, and no lab"},
	{"test/docs", []string{"./"}, "a document is held against the whole program"},
	{"test/process", []string{"./"}, "fencelab is tried as processes of a machine, from outside"},
	{"test/requests", slices.Concat([]string{"./controllers/.", "./controllers/api"}, kubernetes, client, reconciler), "a module of somebody else knows what any other module knows"},
	{"test/gofish", slices.Concat([]string{"./controllers/.", "./controllers/api", "./controllers/reboot", "github.com/stmcginnis/gofish"}, kubernetes, everyClient), "a module of somebody else knows what any other module knows"},
	{"test/foreign", slices.Concat([]string{"./controllers/."}, kubernetes, client, reconciler), "a module of somebody else knows what any other module knows"},
	{"test/script", []string{"./"}, "sessions are typed by whoever uses the program"},
	{"test/clone", []string{"./lab/container", "./program", "./vms/keeper", "github.com/rogpeppe/go-internal"}, "a clone has the program, and knows nothing of what is tried in it"},
	{"ci/browser", []string{"./lab/machine", "github.com/chromedp"}, "a page is tried by what it is on the screen, whatever it shows"},
	{"lab/child", slices.Concat([]string{"./vms/keeper"}, system), "a child process serves whoever starts one"},
	{"lab/cluster", slices.Concat([]string{"./vms/keeper", "./lab/child", "./lab/machine"}, kubernetes, everyClient, anyYAML), "a control plane serves any test; " + whyCI},
	{"lab/cluster/kind", slices.Concat([]string{"./vms/keeper", "./lab/child", "./lab/cluster", "./lab/machine", "sigs.k8s.io/kind/pkg"}, system), "a cluster in a container serves any test; " + whyCI},
	{"lab/cluster/kind/runc", system, "it runs in a node, and depends on nothing there"},
	{"lab/container", []string{"./lab/device", "github.com/distribution/reference", "github.com/google/go-containerregistry/pkg", "golang.org/x/sys"}, "whoever runs an image need not know what is in it"},
	{"ci/image", []string{"github.com/CycloneDX/cyclonedx-go", "github.com/google/go-containerregistry/pkg"}, "an image has a program in it, whichever"},
	{"lab/ironic", []string{"./vms/keeper", "./lab/child", "./lab/container", "./lab/machine", gophercloud}, "an Ironic serves any test; " + whyCI},
	{"ci/libvirtd", []string{"./vms/keeper", "libvirt.org/go"}, "a libvirt of one's own serves any test; " + whyCI},
	{"lab", slices.Concat([]string{"google.golang.org/grpc", "./scenarios", "./controllers", "./fakebmc", "./vms", "./lab", "./sim/model"}, kubernetes, capi, everyClient, anyYAML, system, testTools), whyCI},
	{"lab/record", slices.Concat([]string{"./scenarios/.", "./scenarios/history", "./scenarios/objects", "./scenarios/play", "./controllers/.", "./controllers/api", "./fakebmc/wall", "./lab/machine", "./vms/."}, kubernetes, capi, everyClient, system, testTools), "what happened is recorded whoever did it: a record knows no lab"},
	{"lab/hosts", slices.Concat([]string{"./scenarios/.", "./scenarios/history", "./scenarios/objects", "./scenarios/page", "./scenarios/play", "./fakebmc", "./sim/model", "./vms", "./lab/child", "./lab/cluster", "./lab/gate", "./lab/record", "./lab/machine", "github.com/hugelgupf/p9"}, system, testTools), "machines, their BMCs and their storage know neither the API nor controllers"},
	{"lab/csi", slices.Concat([]string{"./lab/csi", "./vms/guest/evidence", "github.com/container-storage-interface/spec/lib/go/csi", "google.golang.org/grpc", "k8s.io/kubelet/pkg/apis/pluginregistration/v1"}, system), "a CSI driver serves whatever storage, and knows no lab"},
	{"lab/door", slices.Concat([]string{"./scenarios/history", "./scenarios/objects", "./controllers/.", "./lab/gate", "./lab/record"}, kubernetes, everyClient), "whatever passes the door, it knows only requests"},
	{"lab/runner", slices.Concat([]string{"./scenarios/.", "./scenarios/objects", "./scenarios/play", "./controllers/.", "./lab/child", "./lab/cluster", "./lab/container", "./lab/door", "./lab/gate"}, kubernetes, everyClient), "who runs a controller knows nothing of its hosts"},
	{"lab/kept", slices.Concat([]string{"./scenarios", "./controllers/.", "./vms/.", "./vms/keeper", "./lab/cluster", "./lab/.", "./lab/machine"}, system), "a lab that is kept is a lab, whoever looks after it"},
	{"lab/inguest", slices.Concat([]string{"./controllers/.", "./onhost", "./lab/inguest", "./vms/guest/evidence"}, everyClient), "the program in a guest is fencelab's agents, and no lab"},
	{"ci/mutants", slices.Concat([]string{"./sim/corpus/.", "./ci/mutants/finding", "./sim/corpus/source", "./scenarios", "./sim", "./vms/keeper"}, anyYAML), "mistakes in the controllers, those of known bugs too, are found by scenarios and searches, in the simulator"},
	{"ci/claims", []string{"./scenarios", "./sim"}, "a search is finished in the simulator"},
	{"ci/combine", slices.Concat([]string{"./scenarios", "./sim"}, anyYAML), "stories that are made by construction are played in the simulator"},
	{"sim/corpus/source", []string{"./vms/keeper"}, "to build a program with a mistake nobody has to know what finds it"},
	{"lab/conform", []string{"./scenarios", "./lab/."}, "conformance is shown in labs, by stories alone"},
	{"sim/corpus", slices.Concat([]string{"./sim/corpus/source", "./scenarios", "./sim"}, anyYAML), "known bugs are reproduced in the simulator"},
	{"ci/costs", slices.Concat([]string{"./cmd/oncluster", "./lab/cluster", "./vms/keeper"}, kubernetes, everyClient), "what many Pods cost needs a control plane and no play"},
	{"ci/e2e", []string{"./lab/machine", "./lab/slots", "./vms/keeper"}, "what runs the tests depends on nothing that they test"},
	{"ci/fidelity", []string{"./scenarios", "./sim/."}, "what the lab told is on disk, so that who compares it with the simulator needs no lab"},
	{"lab/sweep", []string{"./scenarios"}, "a sweep is a search, of whatever world tells what passed its gates"},
	{"ci/tidy", anyYAML, "rules depend on nothing that they judge"},
}

// testLayers lists additional imports for tests. Any test may use everything in testTools.
var testLayers = []layer{
	{"test/docs", []string{"./"}, ""},
	{"test/process", []string{"./", "golang.org", "go.yaml.in", "github.com", "k8s.io", "sigs.k8s.io"}, ""},
	{"test/requests", []string{"./fencetest", "./scenarios/history"}, ""},
	{"test/foreign", []string{"./controllers/api", "./fencetest", "./sim/.", "./sim/kube"}, ""},
	{"test/gofish", []string{"./fencetest"}, ""},
	{"test/script", slices.Concat([]string{"./"}, anyYAML), ""},
	{"sim", slices.Concat([]string{"./fakebmc/systemtest", "./lab/cluster", "./lab/csi", "./vms/keeper"}, everyClient), ""},
	{"sim/kube", []string{"./sim/kube", "./controllers/api", "sigs.k8s.io/cluster-api/api", "sigs.k8s.io/randfill"}, ""},
	{"sim/kube/kubetest", slices.Concat([]string{"./lab/cluster", "./vms/keeper"}, everyClient, anyYAML), ""},
	{"lab", []string{"./ci/fidelity"}, ""},
	{"lab/cluster", slices.Concat([]string{"./controllers/api"}, capi), ""},
	{"lab/cluster/kind", slices.Concat(everyClient, kubernetes, anyYAML), ""},
	{"ci/image", slices.Concat([]string{"./controllers/manifests"}, kubernetes), ""},
	{"lab/ironic", []string{"./fakebmc"}, ""},
	{"lab/conform", []string{"./sim/.", "./scenarios/objects"}, ""},
	{"sim/corpus", []string{"./vms/keeper"}, ""},
	{"lab/sweep", []string{"./sim/."}, ""},
	{"fakebmc", []string{"./fakebmc", "github.com/stmcginnis/gofish"}, ""},
	{"fakebmc/libvirt", []string{"./fakebmc", "./vms/keeper", "./ci/libvirtd"}, ""},
	{"controllers", slices.Concat([]string{"./controllers"}, anyYAML, everyClient), ""},
	{"scenarios", []string{"./scenarios/guarantee"}, ""},
	{"scenarios/file", anyYAML, ""},
	{"scenarios/page", []string{"./ci/browser"}, ""},
	{"scenarios/report", []string{"./ci/browser"}, ""},
	{"scenarios/objects", anyYAML, ""},
	{"vms/keeper", system, ""},
}

// layerOf returns the layer with the longest directory that holds dir.
func layerOf(layers []layer, dir string) (found layer, ok bool) {
	deep := func(l layer) int { return 2*len(strings.Split(l.dir, "/")) - strings.Count(l.dir, "*") }
	for _, l := range layers {
		prefix := dir
		if parts := strings.Split(dir, "/"); len(parts) > strings.Count(l.dir, "/") {
			prefix = strings.Join(parts[:strings.Count(l.dir, "/")+1], "/")
		}
		if matches, _ := path.Match(l.dir, prefix); matches && (!ok || deep(l) > deep(found)) {
			found, ok = l, true
		}
	}
	return found, ok
}

// allows reports whether an entry of a layer allows an import.
func allows(may, imported string) bool {
	if alone, ok := strings.CutSuffix(may, "/."); ok {
		return imported == alone
	}
	return may == "./" && strings.HasPrefix(imported, may) || under(imported, may)
}

// imports lists imports that no layer allows.
func imports(t *tree) (problems []string, err error) {
	packages := t.packages()
	for _, dir := range slices.Sorted(maps.Keys(packages)) {
		l, ok := layerOf(layers, dir)
		if !ok {
			problems = append(problems, fmt.Sprintf("%s: no layer says what this package may import: add one to ci/tidy", dir))
			continue
		}
		extra, _ := layerOf(testLayers, dir)
		for _, s := range packages[dir] {
			may := append(slices.Clip(l.may), "./"+dir+"/.")
			if s.isTest() {
				may = slices.Concat(may, extra.may, testTools)
			}
			for _, spec := range s.file.Imports {
				imported, err := strconv.Unquote(spec.Path.Value)
				if err != nil {
					return nil, err
				}
				if first, _, _ := strings.Cut(imported, "/"); !strings.Contains(first, ".") {
					continue // the standard library
				}
				short := strings.Replace(imported, module+"/", "./", 1)
				if !slices.ContainsFunc(may, func(m string) bool { return allows(m, short) }) {
					problems = append(problems, fmt.Sprintf("%s:%d: imports %s: %s", s.path, t.fset.Position(spec.Pos()).Line, short,
						l.why))
				}
			}
		}
	}
	return problems, nil
}
