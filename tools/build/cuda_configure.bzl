"""The repository @local_cuda: the CUDA toolkit of this machine, or the fact that there is none.

The toolkit is taken from the first of $CUDA_HOME, /usr/local/cuda, /usr/lib/cuda and the folder of an nvcc on PATH. A
CUDA_HOME that is set is the only place looked at: CUDA_HOME=/nonexistent builds without CUDA.

  @local_cuda//:has_cuda       for select(); also switched off by --@local_cuda//:enabled=false
  @local_cuda//:cuda           all of the below
  @local_cuda//:cuda_headers   the toolkit's and NCCL's headers
  @local_cuda//:cudart, :cublas, :cublasLt, :nccl
  @local_cuda//:toolkit.bzl    NVCC, the path of the compiler, or ""

Where there is no toolkit these targets exist all the same and are empty; targets that need CUDA say so with
`target_compatible_with = CUDA_ONLY` from cuda.bzl, and are skipped.
"""

load(":system_library.bzl", "LIBRARY_DIRS", "find_library")

# The oldest toolkit whose nvcc compiles C++20.
_MIN_MAJOR_VERSION = 12

_LIBRARIES = ["cudart", "cublas", "cublasLt", "nccl"]

# Where a machine that only runs the binary may keep the libraries.
_RUN_TIME_DIRS = ["/usr/local/cuda/lib64", "/usr/local/cuda/lib"]

def _toolkit_candidates(ctx):
    cuda_home = ctx.os.environ.get("CUDA_HOME", "")
    if cuda_home:
        return [cuda_home]
    candidates = ["/usr/local/cuda", "/usr/lib/cuda"]
    nvcc = ctx.which("nvcc")
    if nvcc:
        candidates.append(str(nvcc.realpath.dirname.dirname))
    return candidates

def _nvcc_version(ctx, nvcc):
    """Returns the major version of nvcc, 0 if it does not run."""
    result = ctx.execute([nvcc, "--version"])
    if result.return_code != 0 or "release " not in result.stdout:
        return 0
    return int(result.stdout.split("release ")[1].split(".")[0])

def _find_toolkit(ctx):
    """Returns struct(root, missing): the toolkit's folder or None, and why it cannot be used ("" if it can)."""
    root = None
    for candidate in _toolkit_candidates(ctx):
        if ctx.path(candidate + "/bin/nvcc").exists:
            root = candidate
            break
    if not root:
        return struct(root = None, missing = "")
    version = _nvcc_version(ctx, root + "/bin/nvcc")
    if version < _MIN_MAJOR_VERSION:
        return struct(root = root, missing = "its nvcc is release {}, wanted {} or later".format(
            version,
            _MIN_MAJOR_VERSION,
        ))
    for header in ["cuda_runtime.h", "cublasLt.h"]:
        if not ctx.path("{}/include/{}".format(root, header)).exists:
            return struct(root = root, missing = "it has no include/" + header)
    if not _nccl_include(ctx, root):
        return struct(root = root, missing = "nccl.h is neither in it nor in /usr/include (package libnccl-dev)")
    for library in _LIBRARIES:
        if not find_library(ctx, library, _library_dirs(root)).shared:
            return struct(root = root, missing = "lib{}.so was not found".format(library))
    return struct(root = root, missing = "")

def _library_dirs(root):
    return [root + "/lib64", root + "/lib"] + LIBRARY_DIRS

def _nccl_include(ctx, root):
    for folder in [root + "/include", "/usr/include"]:
        if ctx.path(folder + "/nccl.h").exists:
            return folder
    return None

def _library_target(name, archive, linkopts):
    return """
cc_library(
    name = "{}",
    srcs = {},
    linkopts = {},
    deps = [":cuda_headers"],
)
""".format(name, archive, linkopts)

def _cuda_configure_impl(ctx):
    toolkit = _find_toolkit(ctx)
    usable = toolkit.root and not toolkit.missing
    if toolkit.root and toolkit.missing:
        # buildifier: disable=print
        print("\nThe CUDA toolkit in {} is left out: {}. Targets that need CUDA are skipped.".format(
            toolkit.root,
            toolkit.missing,
        ))

    build = ["""load("@meshwright//tools/build:flags.bzl", "bool_flag")

package(default_visibility = ["//visibility:public"])

bool_flag(
    name = "enabled",
    build_setting_default = {},
)

config_setting(
    name = "has_cuda",
    flag_values = {{":enabled": "True"}},
)

cc_library(
    name = "cuda",
    deps = [":cudart", ":cublas", ":cublasLt", ":nccl"],
)
""".format(bool(usable))]
    ctx.file("toolkit.bzl", 'NVCC = "{}"\n'.format(toolkit.root + "/bin/nvcc" if usable else ""))

    if not usable:
        build.append("""
[cc_library(name = name) for name in ["cuda_headers", "cudart", "cublas", "cublasLt", "nccl"]]
""")
        ctx.file("BUILD.bazel", "".join(build))
        return

    ctx.symlink(toolkit.root + "/include", "include")
    if _nccl_include(ctx, toolkit.root) != toolkit.root + "/include":
        ctx.symlink("/usr/include/nccl.h", "nccl/nccl.h")
    build.append("""
cc_library(
    name = "cuda_headers",
    hdrs = glob(["include/**", "nccl/**"], exclude = ["include/**/*.md"]),
    includes = ["include", "nccl"],
)
""")

    # The runtime is linked statically, as nvcc does by default; the big libraries stay shared and are found at run
    # time where they were at build time, or in the usual places of a machine that only runs the binary.
    for name in _LIBRARIES:
        static = find_library(ctx, name + "_static", _library_dirs(toolkit.root)) if name == "cudart" else None
        if static and static.archive:
            ctx.symlink(static.archive, "lib/libcudart_static.a")
            build.append(_library_target(name, ["lib/libcudart_static.a"], ["-ldl", "-lrt", "-lpthread"]))
            continue
        folder = str(find_library(ctx, name, _library_dirs(toolkit.root)).shared.dirname)
        rpaths = [folder] + [d for d in _RUN_TIME_DIRS if d != folder]
        build.append(_library_target(name, [], ["-L" + folder, "-l" + name] + ["-Wl,-rpath," + d for d in rpaths]))
    ctx.file("BUILD.bazel", "".join(build))

cuda_configure = repository_rule(
    implementation = _cuda_configure_impl,
    environ = ["CUDA_HOME"],
    configure = True,
    local = True,
)
