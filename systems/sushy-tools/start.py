# Starts sushy-tools' emulator in front of the lab's domains, with the account that the clients have.
import os
import sys

import bcrypt

own = os.environ["TMPDIR"]
users = os.path.join(own, "users")
with open(users, "w") as file:
    # The least cost: it is paid with every request.
    digest = bcrypt.hashpw(os.environ["BMC_PASSWORD"].encode(), bcrypt.gensalt(4)).decode()
    file.write(f"{os.environ['BMC_USERNAME']}:{digest}\n")
config = os.path.join(own, "config.py")
with open(config, "w") as file:
    file.write(f"SUSHY_EMULATOR_AUTH_FILE = {users!r}\n")
python = "/usr/bin/python3"
os.environ["PYTHONPATH"] = os.path.abspath(os.path.join(os.path.dirname(sys.argv[1]), "../.."))
os.execv(python, [
    python, sys.argv[1], "--config", config,
    "--interface", "127.0.0.1", "--port", os.environ["PORT"], "--libvirt-uri", os.environ["LIBVIRT_URI"],
])
