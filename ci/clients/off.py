"""Switches a system off as Ironic does, with sushy: python3 off.py URL SYSTEM USER PASSWORD SECONDS; exit code 0 says that it is off."""
import sys
import time
import warnings

warnings.simplefilter("ignore")

import sushy
from sushy import auth

url, path, user, password, limit = sys.argv[1:]
system = sushy.Sushy(url, auth=auth.SessionOrBasicAuth(user, password), verify=False).get_system(path)
system.reset_system(sushy.ResetType.FORCE_OFF)
end = time.monotonic() + float(limit)
while time.monotonic() < end:
    system.refresh(force=True)
    # Ironic's redfish driver maps both to "power off".
    if system.power_state in (sushy.PowerState.OFF, sushy.PowerState.POWERING_OFF):
        sys.exit(0)
    time.sleep(0.5)
sys.exit(1)
