# Every target installs or builds what it lacks; see "make help".
SHELL := /bin/bash
.DEFAULT_GOAL := help

# libvirt is loaded when it is used, so that the one binary runs anywhere.
GO        := CGO_ENABLED=1 go
TAGS      := libvirt_dlopen
CACHE     := .cache
FENCELAB  := bin/fencelab
SCENARIOS ?= catalog:
SEED      ?= 1
CAMPAIGN  ?= ci/campaign.yaml
OUT       ?= out/campaign
FUZZTIME  ?= 60s
KILLS     ?= 10
# What the image of controllers and agents is called.
IMAGE     ?= localhost/fencelab:latest
# What the lab is made of: see run --help.
CLUSTER   ?= embedded
HOSTS     ?= guest
POWER     ?= redfish
CONTROLLERS ?= in-process
# The programs that take the place of controllers, in a file that says so: see run --help.
SYSTEM    ?=
# Which of the lab's stories, by a regular expression about their names; and which tests of another suite, as go test -run has it.
FOCUS     ?=
RUN       ?=
TOOL      := CGO_ENABLED=1 go tool -modfile=ci/tools/go.mod
# What each suite tests.
OF.stories  := ./lab
OF.lab      := ./lab ./lab/hosts ./lab/cluster/kind
OF.bmc       = $(if $(filter quick,$(FENCELAB_E2E)),./fakebmc/libvirt,./fakebmc/... ./lab/ironic)
OF.command  := ./test/process
OF.agents   := ./test/process
OF.browser  := ./scenarios/page
OF.fidelity := ./ci/fidelity
# How many tests of a suite there are at once: enough for all slots, for which they wait.
SIDE      := $(shell echo $$((3 * $$(nproc))))
STORIES   := $(TOOL) ginkgo -tags $(TAGS) -procs $(SIDE) -timeout 1000h -v -silence-skips -fail-on-empty -no-color -output-interceptor-mode=none -focus '$(FOCUS)' $(OF.stories) -- -test.run='^TestLab$$'
E2E       := FENCELAB_REQUIRE_LAB=1 FENCELAB_OUT=$(CURDIR)/out/e2e FENCELAB_CLUSTER=$(CLUSTER) FENCELAB_HOSTS=$(HOSTS) FENCELAB_POWER=$(POWER) FENCELAB_CONTROLLERS=$(CONTROLLERS) FENCELAB_SYSTEM=$(SYSTEM)
# A suite of make e2e; its events are what ci/e2e reads.
SUITE      = mkdir -p out/e2e/events && $(E2E) FENCELAB_REQUIRE_CLIENTS=1 FENCELAB_REQUIRE_BROWSER=1 $(TOOL) gotestsum --format testname --hide-summary all --jsonfile out/e2e/events/$(@:e2e-%=%).json -- -tags $(TAGS) -count=1 -p 1 -timeout 0
# Suites are compiled before one begins: that takes minutes from nothing, and beside stories it would take the cores from emulated hosts.
COMPILE     = echo "compiling $(1): minutes from nothing, seconds with warm caches"; \
	said=$$(CGO_ENABLED=1 $(YIELD) go test -tags $(TAGS) -count=1 -run '^$$' $(sort $(foreach suite,$(1),$(OF.$(suite)))) 2>&1) || { echo "$$said"; exit 1; }; \
	$(TOOL) ginkgo version >/dev/null && $(TOOL) gotestsum --version >/dev/null
# What make e2e runs side by side.
BESIDE    := $(if $(FOCUS),stories,stories bmc command lab browser)
empty     :=
space     := $(empty) $(empty)
# Suites that take slots of the machine as a whole; the tests of the others take their own, before they begin (lab/slots).
SLOTS.bmc     := =2
SLOTS.browser := =2
# bin/e2e ends a suite in which nothing moves: no limit of Go's does, which knows nothing of how slow the machine is.
RUNALL     = bin/e2e $(foreach group,$(1),'$(foreach suite,$(subst +, ,$(group)),$(suite)$(SLOTS.$(suite)))')
# Builds give way to what keeps times.
YIELD     := nice -n 10

##@ Every day

.PHONY: help
help: ## This list
	@awk 'BEGIN {FS = ":.*## "} /^##@/ {printf "\n%s\n", substr($$0, 5)} /^[a-z0-9-]+:.*## / {printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: ## Build bin/fencelab
	$(GO) build -tags $(TAGS) -o $(FENCELAB) .

.PHONY: test
test: controlplane clients browser ## Run every test that needs no virtual machine (about 8 minutes; the first time installs and builds: 6 more)
	+@$(MAKE) --no-print-directory -j 2 test-waiting test-computing

# Tests that wait, for a control plane, a client or a browser, run beside those that compute, which give way to them.
WAITING := lab(/(cluster|ironic))?|cmd/oncluster|scenarios/page|sim/kube/kubetest|test/process
# Of the others, these take longest, and begin: the last one is alone on all cores.
LONGEST := fencelab/(test/(script|requests|docs)|sim|sim/(corpus|search))$$
# make check vets, and looks for more. A make that a test starts is no child of this one.
TESTS   := env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL go test -vet=off -tags $(TAGS) -timeout 30m

.PHONY: test-waiting test-computing
test-waiting:
	CGO_ENABLED=1 $(TESTS) $$($(GO) list -tags $(TAGS) ./... | grep -E '/fencelab/($(WAITING))$$')
test-computing:
	CGO_ENABLED=1 $(YIELD) $(TESTS) $$($(GO) list -tags $(TAGS) ./... | grep -vE '/fencelab/($(WAITING))$$' | awk '/$(subst /,\/,$(LONGEST))/ {print; next} {rest = rest "\n" $$0} END {print rest}')
	cd docs/examples/team-fencer && $(YIELD) go test -vet=off ./...
	cd docs/examples/cluster-api && $(YIELD) go test -vet=off ./...
	cd systems/metal-operator/kinds && $(YIELD) go test -vet=off ./...

# What takes longest of make test: the labs, whole searches, and what builds programs or plays sessions.
SLOW := lab(/(cluster|ironic|container|conform|sweep))?|ci/(image|libvirtd|mutants/.*)|vms(/network)?|sim(/search(/(workers|jobs))?|/kube/kubetest|/corpus)?|fakebmc/(libvirt|fleet)|test/(docs|process|script)

.PHONY: test-quick
test-quick: ## Run the tests of every day, without labs, whole searches and sessions (two to three minutes)
	$(GO) test -tags $(TAGS) -timeout 10m $$($(GO) list -tags $(TAGS) ./... | grep -vE '/fencelab/($(SLOW))$$')
	$(GO) test -tags $(TAGS) -timeout 10m -skip 'TestConsole|TestTutorial|TestResume' ./test/docs ./test/process

.PHONY: check
check: ## Check format, vet, staticcheck, generated files and the rules of ci/tidy (about a minute)
	@unformatted=$$(gofmt -l $$(git ls-files '*.go')); if [ -n "$$unformatted" ]; then echo "run gofmt -w on:"; echo "$$unformatted"; exit 1; fi
	$(GO) vet -tags $(TAGS) ./...
	cd docs/examples/team-fencer && $(GO) vet -tags $(TAGS) ./...
	cd docs/examples/cluster-api && $(GO) vet ./...
	cd systems/metal-operator/kinds && $(GO) vet ./...
	go tool -modfile=ci/tools/go.mod staticcheck -tags $(TAGS) ./...
	$(GO) test ./ci/tidy
	@$(TOOL) actionlint docs/ci/workflow.yaml docs/ci/campaign.yaml
	@ci/generate.sh --check

.PHONY: run
run: build ## Build fencelab, play the stories in the simulator, and leave a page of them in out/run (SCENARIOS=path SEED=n; a minute, and five to build from nothing)
	@$(FENCELAB) run $(SCENARIOS) --quiet --out out/run$(if $(filter-out 1,$(SEED)), --seed $(SEED))

##@ The real world

.PHONY: announce
announce:
	@ci/announce.sh

.PHONY: e2e
e2e: announce build nodes containers $(if $(FOCUS),,image) ## Run the scenarios on a real API server and VMs, and real clients on fakebmc; one JUnit file and one summary (FOCUS=regexp, of all stories and nothing else; CLUSTER=embedded|standard|kind HOSTS=guest|node|model POWER=redfish|ironic; 25 minutes; the first time installs and builds: 15 minutes more)
	@lab/ironic/install.sh
	@systems/cluster-api/build.sh || echo "Cluster API's manager could not be built; its stories are skipped"
	@systems/metal-operator/build.sh v0.7.0 || echo "metal-operator's manager could not be built; its stories are skipped"
ifeq ($(FOCUS),)
	@fakebmc/clients.sh
	@ci/browser/install.sh $(CACHE)/browser
endif
	@$(call COMPILE,$(BESIDE) fidelity)
	@rm -rf out/e2e
	@$(GO) build -o bin/e2e ./ci/e2e
	+@$(if $(FOCUS),FENCELAB_E2E=all) $(call RUNALL,$(subst $(space),+,$(BESIDE)) fidelity)

# The suites: the stories, how the simulator tells them, and what else there is to show of the lab, of BMCs, of the command and of the page. bin/e2e runs them.
.PHONY: e2e-stories e2e-fidelity e2e-lab e2e-bmc e2e-command e2e-browser e2e-agents
e2e-stories:
	@$(E2E) FENCELAB_EVENTS=$(CURDIR)/out/e2e/events/stories.json $(STORIES)
e2e-fidelity:
	@$(SUITE) $(OF.fidelity)
e2e-lab:
	@$(SUITE) -parallel $(SIDE) -skip '^TestLab$$' $(if $(RUN),-run '$(RUN)') $(OF.lab)
e2e-bmc:
	@$(SUITE) $(if $(RUN),-run '$(RUN)') $(OF.bmc)
e2e-command:
	@$(SUITE) -parallel $(SIDE) $(if $(RUN),-run '$(RUN)',-skip '^TestNothingOutlives|^TestAgentsInPods$$') $(OF.command)
e2e-agents:
	@$(SUITE) -run '$(or $(RUN),^TestAgentsInPods$$)' $(OF.agents)
e2e-browser:
	@$(SUITE) $(if $(RUN),-run '$(RUN)') $(OF.browser)

.PHONY: e2e-all
e2e-all: build nodes containers ## Every story of the catalogue in the lab (CONTROLLERS=in-process|process SYSTEM=file, and as above; about three hours and a half)
	@lab/ironic/install.sh
	@$(call COMPILE,stories fidelity)
	@rm -rf out/e2e
	@$(GO) build -o bin/e2e ./ci/e2e
	+@FENCELAB_E2E=all $(call RUNALL,stories fidelity)

.PHONY: e2e-nodes
e2e-nodes: build nodes containers ## Stories on real nodes: with the standard controllers, in clusters of kind's, and behind an Ironic (about an hour and a half)
	@lab/ironic/install.sh
	@$(call COMPILE,stories fidelity agents)
	@rm -rf out/e2e
	@$(GO) build -o bin/e2e ./ci/e2e
	+@FENCELAB_E2E=nodes $(call RUNALL,stories fidelity $(if $(FOCUS),,agents))

.PHONY: e2e-quick
e2e-quick: export FENCELAB_E2E := quick
e2e-quick: build lab ## The part of e2e that every change has to pass (about 2 minutes)
	@$(call COMPILE,stories bmc)
	@rm -rf out/e2e
	@$(GO) build -o bin/e2e ./ci/e2e
	+@$(call RUNALL,stories+bmc)

.PHONY: lab
lab: controlplane ## Install and build what the lab needs
	@vms/assets.sh $(CACHE)/lab

.PHONY: nodes
nodes: lab ## Build what the lab needs for real nodes and the standard controllers of Kubernetes (10 minutes from nothing)
	@vms/node/build.sh $(CACHE)/lab

.PHONY: kind
kind: ## Have the image of a node for --cluster kind: pull it, or build it without a registry, with Docker from Debian (15 minutes from nothing)
	@lab/cluster/kind/build.sh

.PHONY: containers
containers:
	@lab/cluster/kind/build.sh || echo "the image of kind's node could not be built; its stories are skipped"

.PHONY: clients
clients:
	@fakebmc/clients.sh && lab/ironic/install.sh || echo "not every client of a BMC could be installed; the tests that need it are skipped"

.PHONY: browser
browser:
	@ci/browser/install.sh $(CACHE)/browser || echo "no browser could be installed; the tests that need one are skipped"

.PHONY: controlplane
controlplane: ## Build etcd and kube-apiserver from their Go modules
	@lab/cluster/build.sh

##@ Now and then

.PHONY: mutants
mutants: ## Put one mistake after the other into the controllers and see what finds it; writes docs/measured/mutants.md (MUTANT=prefix,...: those alone, and their lines; about an hour)
	$(GO) run ./ci/mutants -only '$(MUTANT)' -table docs/measured/mutants.md

.PHONY: excuses
excuses: ## Look for what guarantees excuse and right controllers do without; writes docs/measured/excuses.md (MUTANT=prefix,...: those alone; about 35 minutes)
	$(GO) run -tags $(TAGS) ./ci/mutants -audit -only '$(MUTANT)' -limit 4s -table docs/measured/excuses.md

.PHONY: corpus
corpus: build ## Reproduce the known bugs of scenarios/catalog/regression; writes docs/track-record.md (half a minute)
	$(FENCELAB) corpus --table docs/track-record.md

.PHONY: campaign
campaign: build ## Play the searches of ci/campaign.yaml; fails on a violation or a story that wasn't told, and goes on where it was interrupted (CAMPAIGN=file OUT=dir; a few minutes; nights with CAMPAIGN=ci/orders.yaml)
	@$(FENCELAB) campaign run $(CAMPAIGN) --out $(OUT)

.PHONY: bench
bench: build ## Measure what docs/performance.md reports
	@ci/bench.sh

.PHONY: hostile
hostile: ## Attack a BMC with 1,000 connections of each hostile kind, a minute each, while a normal client reads (12 minutes)
	$(GO) test ./fakebmc/fleet -run TestHostileClients -count=1 -v -timeout 30m -args -hostile 1m -connections 1000 -slower 2

.PHONY: kills
kills: build nodes containers image ## Kill ten runs in the lab, of all kinds of labs, at moments that a seed draws, and fail each suite of e2e in the middle: look for what is left (KILLS=n SEED=n; about 25 minutes)
	@lab/ironic/install.sh
	@systems/cluster-api/build.sh
	@ci/browser/install.sh $(CACHE)/browser
	@$(GO) build -o bin/e2e ./ci/e2e
	FENCELAB_REQUIRE_LAB=1 $(GO) test -tags $(TAGS) -count=1 -timeout 2h -run '^TestNothingOutlivesA(KilledRun|FailedSuite)$$' -v ./test/process -args -kills $(KILLS) -kill-seed $(SEED)

.PHONY: fuzz
fuzz: ## Fuzz the parsers (FUZZTIME each)
	$(GO) test ./controllers/api -run '^$$' -fuzz FuzzParseRebootMode -fuzztime $(FUZZTIME)
	$(GO) test ./controllers/api -run '^$$' -fuzz FuzzRebootRequests -fuzztime $(FUZZTIME)
	$(GO) test ./scenarios/file -run '^$$' -fuzz FuzzLoad -fuzztime $(FUZZTIME) -fuzzminimizetime 20x
	$(GO) test ./sim/kube -run '^$$' -fuzz FuzzMembers -fuzztime $(FUZZTIME)
	$(GO) test ./fakebmc -run '^$$' -fuzz FuzzParseRules -fuzztime $(FUZZTIME)
	$(GO) test ./fakebmc/redfish -run '^$$' -fuzz FuzzHTTP -fuzztime $(FUZZTIME)
	$(GO) test ./fakebmc/ipmi -run '^$$' -fuzz FuzzHandle -fuzztime $(FUZZTIME)

.PHONY: combine
combine: ## Play each operation of the language in each phase of each protocol (ONLY=regexp, RANDOM=schedules of each beside the default one, PAIRS=n: one of n stories of two operations instead, WALKS=n: n stories of operations on the way through all phases, by SEED, WORLD=renamed or slow)
	$(GO) run ./ci/combine $(if $(PAIRS),-pairs -sample $(PAIRS)) $(if $(WALKS),-walks $(WALKS) -seed $(or $(SEED),1)) $(if $(WORLD),-world $(WORLD)) $(if $(ONLY),-only '$(ONLY)') $(if $(RANDOM),-schedules $(RANDOM))

.PHONY: golden
golden: controlplane ## Write the golden files anew; review the difference before you commit it
	-$(GO) test ./scenarios/file -update # descriptions of the schema, which the second run embeds
	for package in ./scenarios/file ./scenarios/guarantee ./controllers/reboot ./fakebmc/redfish ./vms ./lab/cluster ./lab/cluster/kind ./ci/tidy ./sim/kube/kubetest ./sim/corpus ./lab/conform ./ci/e2e ./test/docs ./test/script; do \
		$(GO) test -tags $(TAGS) $$package -update || exit; done

.PHONY: image
image: ## Build bin/image.tar, an image of fencelab without virtual machines: controllers, agents, simulator, BMC (IMAGE=name); docker load, ctr images import and kind load read it
	@ci/static.sh bin/image/fencelab
	$(GO) run ./ci/image -user 65532:65532 bin/image/fencelab '$(IMAGE)' bin/image.tar

.PHONY: release
release: ## Write the archives of this version to dist: the simulator and the BMC, on Linux also labs of model hosts (PLATFORMS='linux/amd64 darwin/arm64')
	@$(YIELD) ci/release.sh

.PHONY: versions
versions: ## Build and test the example of a fencer with the newest Kubernetes of docs/setup.md
	@$(YIELD) ci/versions.sh

.PHONY: generate
generate: ## Generate deep copies, CRDs, RBAC and the schema's descriptions
	@ci/generate.sh

.PHONY: clean
clean: ## Remove what was built here
	rm -rf bin dist out $(CACHE)
