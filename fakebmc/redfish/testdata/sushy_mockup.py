"""Finds a BMC's system by its links, and drives its power, boot override and media as Ironic does: python3 sushy_mockup.py URL USER PASSWORD IMAGE"""
import sys

import sushy
from sushy import auth

url, user, password, image = sys.argv[1:]
for how in [auth.SessionAuth(user, password), auth.BasicAuth(user, password)]:
    root = sushy.Sushy(url, auth=how)
    system = next(s for s in root.get_system_collection().get_members() if "#ComputerSystem.Reset" in s.json.get("Actions", {}))
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
    system.set_system_boot_options(target=sushy.BootSource.PXE, enabled=sushy.BootSourceOverrideEnabled.ONCE)
    system.refresh(force=True)
    print("boots from", system.boot.target.value, system.boot.enabled.value, flush=True)
    system.set_system_boot_options(target=sushy.BootSource.NONE, enabled=sushy.BootSourceOverrideEnabled.DISABLED)
    if "VirtualMedia" in manager.json:
        drive = next(d for d in manager.virtual_media.get_members() if sushy.VirtualMediaType.CD in d.media_types)
        drive.insert_media(image)
        drive.refresh(force=True)
        print("media", drive.image, drive.inserted, flush=True)
        drive.eject_media()
        drive.refresh(force=True)
        print("media", drive.inserted, flush=True)
