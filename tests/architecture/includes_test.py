#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The dependencies between the folders point one way: reads every #include and fails on any other.

Usage: includes_test.py REPOSITORY [--expect-violation]   (the second form is the test of this test)
"""
import pathlib
import re
import sys

# Folder → folders whose headers it may include, besides its own. "x:" names the torch-free target of a
# folder that has two: its sources in CMake with their headers, and the files listed in TORCH_FREE_FILES.
TORCH_FREE = {
    "platform": set(),
    "link": {"platform", "proto"},
    "tls": {"platform"},
    "parallel": {"platform", "proto"},
    "schedules": {"platform", "proto"},
    "fsdp:": {"platform", "parallel"},
    "ops:": set(),
    "model:": {"platform", "schedules", "parallel", "ops:"},
    "checkpoint:": {"platform", "fsdp:"},
    "data:": {"platform"},
    "jobspec": {"platform", "proto", "parallel", "model:", "checkpoint:", "data:"},
    "config": {"platform", "jobspec", "tls"},
    "plan": {"platform", "proto", "jobspec", "parallel", "schedules", "fsdp:", "model:"},
    "controller": {"platform", "proto", "link", "tls", "jobspec", "config", "parallel", "schedules", "plan"},
    "worker": {"platform", "proto", "link", "tls", "jobspec", "config", "parallel", "schedules", "plan", "checkpoint:"},
    "cli": {"platform", "proto", "link", "tls", "jobspec", "config", "parallel", "schedules", "plan", "fsdp:", "model:", "checkpoint:"},
}
TORCH_HALF = {
    "device": {"platform"},
    "comm": {"platform", "parallel", "device"},
    "ops": {"platform", "schedules", "parallel", "device", "ops:"},
    "fsdp": {"platform", "parallel", "device", "comm", "fsdp:"},
    "model": {"platform", "schedules", "parallel", "device", "comm", "ops", "ops:", "model:"},
    "checkpoint": {"platform", "schedules", "parallel", "device", "comm", "fsdp", "fsdp:", "model", "model:", "checkpoint:"},
    "data": {"platform", "schedules", "parallel", "data:"},
    "trainer": {"platform", "proto", "link", "jobspec", "parallel", "schedules", "plan", "device", "comm", "ops",
                "ops:", "fsdp", "fsdp:", "model", "model:", "checkpoint", "checkpoint:", "data", "data:"},
}
ALLOWED = {**TORCH_FREE, **TORCH_HALF}
TORCH_FREE_FILES = {
    "checkpoint": {"info.h", "owner.h", "start_files.h"},
    "data": {"text_format.h"},
    "fsdp": {"double_double.h", "host_device.h", "norm_outcome.h", "parameter_norms.h", "run_inputs.h"},
    "ops": {"attention_shape.h", "attention_work.h", "attention_work.cc", "delta_shape.h", "delta_work.h", "device_kind.h", "latent_shape.h", "linear_work.h", "mixer_work.h", "rope_scaling.h", "rope_scaling.cc", "router_config.h", "row_work.h", "scan_shape.h", "sparse_work.h", "tokens.h", "workspace.h"},
}
TORCH_FREE_TARGETS = {"checkpoint": "tandem_checkpoint_format", "data": "tandem_data_paths", "fsdp": "tandem_fsdp_layout", "model": "tandem_model_config"}
# The files that include LibTorch, and why; all others go without (and build faster).
TORCH_FILES = {
    "comm/gloo_communicator.cc": "Gloo is reached through it",
    "device/cpu_stream.cc": "its threads, and no gradients",
    "device/cuda/graph.cc": "its allocator is watched during a capture",
    "device/cuda/stream.cc": "its current stream is ours",
    "ops/cpu/product.cc": "its products",
    "ops/cpu/tiled_product.cc": "its products",
    "ops/cuda/blocked_attention.cc": "its products",
    "ops/cuda/device_kernels.cc": "its current stream",
    "ops/tensors.cc": "arrays as its tensors, for these",
    "trainer/failure.cc": "its exceptions",
    "trainer/trainer_process.cc": "its threads",
}
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^">]+)[">]', re.M)
TORCH_HEADER = re.compile(r"^(ATen|torch|c10)/")
GRPC_HEADER = re.compile(r"^grpc|\.grpc\.pb\.h$")


def torch_free_files(root, folder):
    files = set(TORCH_FREE_FILES.get(folder, ()))
    lists = root / folder / "CMakeLists.txt"
    if folder in TORCH_FREE_TARGETS and lists.exists():
        sources = re.search(rf"tandem_library\({TORCH_FREE_TARGETS[folder]}\b[^)]*?SOURCES([^)]*?)(?:\w*DEPS|\))", lists.read_text())
        for name in re.findall(r"[\w/]+(?=\.cc)", sources.group(1)):
            files |= {name + ".cc", name + ".h"}
    return files


def target(free, folder, name):
    return folder + ":" if name in free.get(folder, ()) else folder


def violations(root):
    free = {folder: torch_free_files(root, folder) for folder in ("checkpoint", "data", "fsdp", "model", "ops")}
    for folder in sorted({key.rstrip(":") for key in ALLOWED}):
        for path in sorted((root / folder).rglob("*")):
            if path.suffix not in (".h", ".cc", ".cu", ".cuh"):
                continue
            here = target(free, folder, path.name)
            for include in INCLUDE.findall(path.read_text()):
                where = f"{path.relative_to(root)} includes {include}"
                if TORCH_HEADER.match(include):
                    if here in TORCH_FREE:
                        yield f"{where}: {here.rstrip(':')} is torch-free here"
                    elif path.suffix == ".h":
                        yield f"{where}: forward-declare at::Tensor in headers"
                    elif include == "torch/torch.h":
                        yield f"{where}: include ATen/core/Tensor.h and ATen/ops/<op>.h instead"
                    elif str(path.relative_to(root)) not in TORCH_FILES:
                        yield f"{where}: pass memory, sizes and types instead of tensors, or say in TORCH_FILES why not"
                elif GRPC_HEADER.search(include):
                    if here not in ("controller", "worker", "cli"):
                        yield f"{where}: only controller, worker and cli know gRPC"
                else:
                    first = include.split("/")[0]
                    other = "proto" if first == "tandem" else first
                    if other != "proto" and other + ":" not in ALLOWED and other not in ALLOWED:
                        continue  # a library's header
                    other = target(free, other, include.split("/")[-1])
                    if other != here and other not in ALLOWED[here]:
                        yield f"{where}: {here.rstrip(':')} may include only {', '.join(sorted(ALLOWED[here])) or 'itself'}"


def main():
    root = pathlib.Path(sys.argv[1])
    found = list(violations(root))
    for violation in found:
        print(violation)
    if "--expect-violation" in sys.argv:
        return 0 if found else 1
    files = sum(1 for key in {k.rstrip(":") for k in ALLOWED} for p in (root / key).rglob("*") if p.suffix in (".h", ".cc"))
    print(f"{files} files, {len(found)} includes against the layers")
    return 1 if found or files == 0 else 0


sys.exit(main())
