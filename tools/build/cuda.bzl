"""Builds CUDA sources with nvcc, on machines that have it.

  load("//tools/build:cuda.bzl", "CUDA_ONLY", "cuda_library")

  cuda_library(
      name = "kernels",
      srcs = ["kernels.cu"],
      hdrs = ["kernels.h"],      # what C++ code includes
      deps = ["//ir:units"],
  )

  cc_library(
      name = "executor",
      ...
      target_compatible_with = CUDA_ONLY,
      deps = [":kernels", "@local_cuda//:cublasLt"],
  )
"""

load("@bazel_tools//tools/cpp:toolchain_utils.bzl", "find_cpp_toolchain")
load("@local_cuda//:toolkit.bzl", "NVCC")

# For `target_compatible_with`: the target is skipped where there is no CUDA toolkit.
CUDA_ONLY = select({
    "@local_cuda//:has_cuda": [],
    "//conditions:default": ["//tools/build:unavailable"],
})

def if_cuda(yes, no = []):
    """Returns `yes` where there is a CUDA toolkit, else `no`; for deps, srcs and the like."""
    return select({
        "@local_cuda//:has_cuda": yes,
        "//conditions:default": no,
    })

_NVCC_FLAGS = [
    "-std=c++20",
    "-O3",
    "-Xcompiler=-fPIC,-Wall,-Wextra",
]
_HOPPER = "-gencode=arch=compute_90a,code=sm_90a"

# Machine code for Ampere and Hopper, and portable code (PTX) from which the driver makes any later one's.
_ARCHITECTURES = ["-gencode=arch=compute_80,code=[sm_80,compute_80]", _HOPPER]

def _compile(ctx, flags, inputs, output):
    args = ctx.actions.args()
    args.add_all(_NVCC_FLAGS + flags)
    args.add("-I.")
    args.add_all(inputs.defines, format_each = "-D%s")
    args.add_all(inputs.includes, before_each = "-I")
    args.add_all(inputs.quote_includes, before_each = "-I")
    args.add_all(inputs.system_includes, before_each = "-isystem")
    args.add("-o", output)
    args.add_all(ctx.files.srcs)
    ctx.actions.run(
        executable = NVCC,
        arguments = [args],
        inputs = depset(ctx.files.srcs + ctx.files.hdrs, transitive = [inputs.headers]),
        outputs = [output],
        mnemonic = "CudaCompile",
        progress_message = "Compiling CUDA of %s" % ctx.label,
        use_default_shell_env = True,
    )

def _cuda_archive_impl(ctx):
    cc_toolchain = find_cpp_toolchain(ctx)
    features = cc_common.configure_features(ctx = ctx, cc_toolchain = cc_toolchain)

    own = cc_common.create_compilation_context(headers = depset(ctx.files.hdrs))
    deps = cc_common.merge_cc_infos(cc_infos = [dep[CcInfo] for dep in ctx.attr.deps])
    inputs = deps.compilation_context

    archive = ctx.actions.declare_file("lib{}.a".format(ctx.label.name))
    _compile(ctx, _ARCHITECTURES + ctx.attr.copts + ["--lib"], inputs, archive)

    linked = cc_common.create_linker_input(
        owner = ctx.label,
        libraries = depset([cc_common.create_library_to_link(
            actions = ctx.actions,
            feature_configuration = features,
            cc_toolchain = cc_toolchain,
            pic_static_library = archive,
            static_library = archive,
        )]),
    )
    info = CcInfo(
        compilation_context = own,
        linking_context = cc_common.create_linking_context(linker_inputs = depset([linked])),
    )
    return [
        DefaultInfo(files = depset([archive])),
        cc_common.merge_cc_infos(direct_cc_infos = [info], cc_infos = [deps]),
    ]

_cuda_archive = rule(
    implementation = _cuda_archive_impl,
    attrs = {
        "copts": attr.string_list(doc = "More flags for nvcc."),
        "deps": attr.label_list(providers = [CcInfo]),
        "hdrs": attr.label_list(allow_files = [".h", ".cuh"]),
        "srcs": attr.label_list(allow_files = [".cu"], mandatory = True),
        "_cc_toolchain": attr.label(default = "@bazel_tools//tools/cpp:current_cc_toolchain"),
    },
    fragments = ["cpp"],
    provides = [CcInfo],
    toolchains = ["@bazel_tools//tools/cpp:toolchain_type"],
)

def cuda_library(name, srcs, hdrs = [], deps = [], **kwargs):
    """A static library of CUDA sources, to be used in the `deps` of any cc rule. Skipped where there is no CUDA."""
    _cuda_archive(
        name = name,
        srcs = srcs,
        hdrs = hdrs,
        target_compatible_with = CUDA_ONLY,
        deps = deps + ["@local_cuda//:cudart"],
        **kwargs
    )

def _cuda_machine_code_impl(ctx):
    deps = cc_common.merge_cc_infos(cc_infos = [dep[CcInfo] for dep in ctx.attr.deps])
    code = ctx.actions.declare_file(ctx.label.name + ".cubin")
    _compile(ctx, [_HOPPER, "-cubin"], deps.compilation_context, code)
    return [DefaultInfo(files = depset([code]), runfiles = ctx.runfiles([code]))]

_cuda_machine_code = rule(
    implementation = _cuda_machine_code_impl,
    attrs = {
        "deps": attr.label_list(providers = [CcInfo]),
        "hdrs": attr.label_list(allow_files = [".h", ".cuh"]),
        "srcs": attr.label_list(allow_files = [".cu"], mandatory = True),
    },
)

def cuda_machine_code(name, srcs, hdrs = [], deps = [], **kwargs):
    """NAME.cubin, the machine code for compute capability 9.0a of one CUDA source: for tests that look into it."""
    _cuda_machine_code(
        name = name,
        srcs = srcs,
        hdrs = hdrs,
        target_compatible_with = CUDA_ONLY,
        deps = deps + ["@local_cuda//:cudart"],
        **kwargs
    )
