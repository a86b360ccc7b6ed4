"""What kernels wrote, shortened to the lines that are about memory."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

KIB = 1024
GIB = 2**30

# 24 GiB and no swap.
WITHOUT_SWAP = """\
MemTotal:       24683652 kB
MemFree:        20562200 kB
MemAvailable:   23948692 kB
Buffers:           22408 kB
Cached:          3579144 kB
SwapCached:            0 kB
Active(anon):       1176 kB
Inactive(anon):   226532 kB
Unevictable:       18120 kB
Mlocked:           17324 kB
SwapTotal:             0 kB
SwapFree:              0 kB
AnonPages:        236828 kB
Shmem:              8956 kB
HugePages_Total:       0
"""

# A model of 2 GB was paged out just now: what it held is in swap, and still in memory as well.
PAGED_OUT = """\
MemTotal:       24683652 kB
MemFree:        17142132 kB
MemAvailable:   21273328 kB
SwapCached:      1973844 kB
Active(anon):       1276 kB
Inactive(anon):  2766256 kB
Unevictable:       19380 kB
Mlocked:           18524 kB
SwapTotal:       6291452 kB
SwapFree:        4149948 kB
AnonPages:        804220 kB
Shmem:              8932 kB
"""

# The same model awake again: 171 MB of it weren't touched, the rest is mapped, and in swap too.
WOKEN = """\
MemTotal:       24683652 kB
MemFree:        17124484 kB
MemAvailable:   21208072 kB
SwapCached:      2137468 kB
Active(anon):     165704 kB
Inactive(anon):  2774052 kB
Unevictable:       19380 kB
Mlocked:           18540 kB
SwapTotal:       6291452 kB
SwapFree:        4150768 kB
AnonPages:       2782456 kB
Shmem:              8860 kB
"""

STATUS = """\
Name:\tllama-server
State:\tS (sleeping)
Threads:\t5
VmPeak:\t 2919728 kB
VmLck:\t       0 kB
VmRSS:\t 1981504 kB
RssAnon:\t 1970568 kB
RssFile:\t   10936 kB
RssShmem:\t       0 kB
VmSwap:\t  170956 kB
"""

# A container with a cgroup namespace sees its own cgroup as the root.
CONTAINER_2 = {
    "proc/self/cgroup": "0::/\n",
    "proc/self/mountinfo": (
        "1201 1200 0:26 / /sys/fs/cgroup ro,nosuid,nodev - cgroup2 cgroup rw,nsdelegate\n"
    ),
    "sys/fs/cgroup/memory.max": f"{4 * GIB}\n",
    "sys/fs/cgroup/memory.high": "max\n",
    "sys/fs/cgroup/memory.current": f"{3 * GIB}\n",
    "sys/fs/cgroup/memory.swap.max": "0\n",
    "sys/fs/cgroup/memory.swap.current": "0\n",
    "sys/fs/cgroup/memory.stat": (
        f"anon {GIB}\nfile {2 * GIB}\nshmem 0\nswapcached 0\ninactive_anon {GIB}\n"
        f"active_anon 0\ninactive_file {GIB}\nactive_file {GIB}\nslab_reclaimable 4096\n"
    ),
}

# Docker with version 1: the mount's root is the container's path.
CONTAINER_1 = {
    "proc/self/cgroup": "11:cpuset:/docker/4f1\n4:memory:/docker/4f1\n1:name=systemd:/docker/4f1\n",
    "proc/self/mountinfo": (
        "700 690 0:30 /docker/4f1 /sys/fs/cgroup/memory ro,nosuid - cgroup cgroup rw,memory\n"
        "701 690 0:31 /docker/4f1 /sys/fs/cgroup/cpuset ro,nosuid - cgroup cgroup rw,cpuset\n"
    ),
    "sys/fs/cgroup/memory/memory.limit_in_bytes": f"{2 * GIB}\n",
    "sys/fs/cgroup/memory/memory.usage_in_bytes": f"{GIB}\n",
    "sys/fs/cgroup/memory/memory.memsw.limit_in_bytes": f"{3 * GIB}\n",
    "sys/fs/cgroup/memory/memory.memsw.usage_in_bytes": f"{GIB + GIB // 4}\n",
    "sys/fs/cgroup/memory/memory.stat": (
        "inactive_file 0\nrss 12288\nswapcached 0\n"
        f"total_inactive_file {GIB // 2}\ntotal_active_file 0\ntotal_rss 12288\n"
        "total_inactive_anon 12288\ntotal_active_anon 0\ntotal_shmem 0\ntotal_swapcached 0\n"
    ),
}

# A service under systemd: the limit is the slice's, two levels up; its own is higher.
SERVICE = {
    "proc/self/cgroup": "0::/models.slice/llmsnap.service\n",
    "proc/self/mountinfo": "33 24 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
    "sys/fs/cgroup/cgroup.controllers": "memory\n",
    "sys/fs/cgroup/models.slice/memory.max": "max\n",
    "sys/fs/cgroup/models.slice/memory.high": f"{8 * GIB}\n",
    "sys/fs/cgroup/models.slice/memory.current": f"{5 * GIB}\n",
    "sys/fs/cgroup/models.slice/memory.swap.max": f"{2 * GIB}\n",
    "sys/fs/cgroup/models.slice/memory.swap.current": f"{GIB}\n",
    "sys/fs/cgroup/models.slice/llmsnap.service/memory.max": f"{16 * GIB}\n",
    "sys/fs/cgroup/models.slice/llmsnap.service/memory.current": f"{GIB}\n",
}

# No limits; the membership and the mounts of a machine with both versions.
HYBRID = {
    "proc/self/cgroup": "4:memory:/user/one\n1:cpu:/\n0::/\n",
    "proc/self/mountinfo": (
        "31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755\n"
        "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n"
        "41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n"
    ),
    "sys/fs/cgroup/memory/user/one/memory.limit_in_bytes": "9223372036854771712\n",
    "sys/fs/cgroup/memory/user/one/memory.usage_in_bytes": "30498816\n",
    "sys/fs/cgroup/memory/user/one/memory.memsw.limit_in_bytes": "9223372036854771712\n",
    "sys/fs/cgroup/memory/user/one/memory.stat": "total_inactive_file 1551183872\n",
    "sys/fs/cgroup/unified/cgroup.controllers": "\n",
}


def write(root: Path, files: Mapping[str, str]) -> Path:
    """Write `files` below `root` and return it."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root
