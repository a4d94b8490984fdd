"""Finds a BMC's system by its links and drives its power as Ironic does: python3 sushy_mockup.py URL USER PASSWORD"""
import sys

import sushy
from sushy import auth

url, user, password = sys.argv[1:]
for how in [auth.SessionAuth(user, password), auth.BasicAuth(user, password)]:
    root = sushy.Sushy(url, auth=how)
    (system,) = root.get_system_collection().get_members()
    (manager,) = system.managers
    (chassis,) = system.chassis
    print(system.path, manager.path, chassis.path, *sorted(r.value for r in system.get_allowed_reset_system_values()), flush=True)
    for reset, final in [(sushy.ResetType.FORCE_OFF, "Off"), (sushy.ResetType.ON, "On"), (sushy.ResetType.FORCE_RESTART, "On")]:
        system.reset_system(reset)
        for _ in range(10000):
            system.refresh(force=True)
            if system.power_state and system.power_state.value == final:
                break
        print(reset.value, system.power_state.value, flush=True)
    print("processors", *(p.total_cores for p in system.processors.get_members()), flush=True)
