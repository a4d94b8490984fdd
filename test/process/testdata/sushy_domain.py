"""Drives a domain's BMC with sushy: python3 sushy_domain.py URL SYSTEM USER PASSWORD IMAGE SERIAL

The host is off before and after. It boots three times: once by itself, once from a
CD that is inserted while it runs, and once by itself again. It says so on its
serial port, whose output is the file SERIAL."""
import sys
import time

import sushy
from sushy import auth

url, path, user, password, image, serial = sys.argv[1:]
system = sushy.Sushy(url, auth=auth.SessionAuth(user, password)).get_system(path)
boot = system.json["Boot"]
print(
    system.power_state.value + ", boots from",
    *boot["BootSourceOverrideTarget@Redfish.AllowableValues"],
    "in", *boot["BootSourceOverrideMode@Redfish.AllowableValues"],
)


def said():
    with open(serial) as lines:
        return len(lines.readlines())


def reset(how, final):
    before = said()
    system.reset_system(how)
    while True:
        booted = said() != before  # asked first: what is read then is what the BMC says after the boot
        system.refresh(force=True)
        if system.power_state == final and (booted or final == sushy.PowerState.OFF):
            return
        time.sleep(0.05)


reset(sushy.ResetType.ON, sushy.PowerState.ON)
drive = system.managers[0].virtual_media.get_members()[0]
drive.insert_media(image)
drive.refresh(force=True)
system.set_system_boot_options(sushy.BootSource.CD, enabled=sushy.BootSourceOverrideEnabled.ONCE)
system.refresh(force=True)
print(f"{system.power_state.value}, inserted {drive.image_name}, boots once from {system.boot.target.value}")
reset(sushy.ResetType.FORCE_RESTART, sushy.PowerState.ON)
print(f"{system.power_state.value}, then from {system.boot.target.value}")
reset(sushy.ResetType.FORCE_RESTART, sushy.PowerState.ON)
drive.eject_media()
drive.refresh(force=True)
reset(sushy.ResetType.GRACEFUL_SHUTDOWN, sushy.PowerState.OFF)
print(f"{system.power_state.value}, inserted {'something' if drive.inserted else 'nothing'}")
