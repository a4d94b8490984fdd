package scenarios

// What a scenario may assume of the world. Each is a premise of every fencing protocol
// at some place, and docs/seeds.md shows what comes of it where it does not hold.
const (
	// BMCObeys: a BMC carries out what it accepts, and within a few seconds.
	BMCObeys = "bmc-obeys"
	// RequestsArrive: what is written to the API or commanded of a BMC arrives at once
	// or never.
	RequestsArrive = "requests-arrive"
	// WatchdogsFire: a watchdog resets its host when its time is up.
	WatchdogsFire = "watchdogs-fire"
	// AgentsRun: an agent on a host comes round when it has to, and the kernel reboots when
	// it asks for that. Without a watchdog nothing else ends a host.
	AgentsRun = "agents-run"
	// ControllersRun: a controller hears of changes, takes its turn and gets an answer at once.
	// Whoever waits for another to be done goes by nothing else.
	ControllersRun = "controllers-run"
)

// Premises are all of them.
var Premises = []string{BMCObeys, RequestsArrive, WatchdogsFire, AgentsRun, ControllersRun}
