"""Drives a BMC with sushy as Ironic does: python3 sushy_session.py URL SYSTEM USER PASSWORD"""
import sys

import sushy
from sushy import auth, exceptions

url, path, user, password = sys.argv[1:]


def say(*words):
    print(*words, flush=True)


for name, how in [("session", auth.SessionAuth(user, password)), ("basic", auth.BasicAuth(user, password))]:
    root = sushy.Sushy(url, auth=how)
    system = root.get_system(path)
    say(name, "power", system.power_state.value)
    say(name, "resets", *sorted(r.value for r in system.get_allowed_reset_system_values()))
    for reset, final in [
        (sushy.ResetType.FORCE_OFF, "Off"),
        (sushy.ResetType.ON, "On"),
        (sushy.ResetType.FORCE_RESTART, "On"),
        (sushy.ResetType.GRACEFUL_RESTART, "On"),
        (sushy.ResetType.NMI, "On"),
        (sushy.ResetType.GRACEFUL_SHUTDOWN, "Off"),
        (sushy.ResetType.PUSH_POWER_BUTTON, "On"),
        (sushy.ResetType.POWER_CYCLE, "On"),
    ]:
        system.reset_system(reset)
        for _ in range(10000):
            system.refresh(force=True)
            if system.power_state and system.power_state.value == final:
                break
        say(name, reset.value, system.power_state.value)
    system.set_system_boot_options(sushy.BootSource.PXE, enabled=sushy.BootSourceOverrideEnabled.ONCE)
    system.refresh(force=True)
    say(name, "boot", system.boot.target.value, system.boot.enabled.value)
    system.reset_system(sushy.ResetType.FORCE_RESTART)
    system.refresh(force=True)
    say(name, "boot consumed", system.boot.enabled.value)
    manager = system.managers[0]
    say(name, "manager", manager.manager_type.value, *sorted(m.media_types[0].value for m in manager.virtual_media.get_members()))
    say(name, "chassis", system.chassis[0].chassis_type.value)
    # What Ironic's inspection asks for.
    cpus = system.processors.summary
    say(name, "processors", cpus.count, cpus.architecture.value)
    say(name, "memory", system.memory_summary.size_gib)
    say(name, "interfaces", *(f"{mac} {state.value}" for mac, state in sorted(system.ethernet_interfaces.summary.items())))
    say(name, "drives", *system.storage.drives_sizes_bytes)
    say(name, "bios", *(f"{k}={v}" for k, v in system.bios.attributes.items()))
    say(name, "secure boot", system.secure_boot.enabled)
    if name == "session":
        # The BMC drops the session: sushy has to log in again.
        root._conn.delete(how.get_session_resource_id())
        system.refresh(force=True)
        say(name, "after expiry", system.power_state.value)
        how.close()
    else:
        try:
            system.reset_system("Suspend")
        except exceptions.SushyError as e:
            say(name, "Suspend", type(e).__name__)
