"""Finds a library that the system's packages installed, and makes Bazel targets of it.

A component is linked statically where the package has an archive (a binary can then be carried to a machine without
the package), else with the shared library.
"""

# Debian and Ubuntu first, by architecture; then the plain places of other systems.
LIBRARY_DIRS = [
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/local/lib",
    "/usr/lib64",
    "/usr/lib",
]

# Headers in these need no flag; the compiler looks there by itself.
INCLUDE_DIRS = [
    "/usr/include",
    "/usr/local/include",
]

def fail_missing(what, package):
    """Stops the build with the one message a user can act on."""
    fail("\n\n  {} was not found on this machine. Install it with\n\n".format(what) +
         "      apt-get install {}\n\n".format(package) +
         "  or build with tools/bazel, which installs all that is missing.\n")

def find_library(ctx, name, dirs):
    """Returns struct(archive, shared): the path of lib<name>.a and of lib<name>.so, or None for each not found.

    Both come from one folder, the first of `dirs` that has either.
    """
    for folder in dirs:
        archive = ctx.path("{}/lib{}.a".format(folder, name))
        shared = ctx.path("{}/lib{}.so".format(folder, name))
        if archive.exists or shared.exists:
            return struct(
                archive = archive if archive.exists else None,
                shared = shared if shared.exists else None,
            )
    return struct(archive = None, shared = None)

def link_library(ctx, name, library):
    """Makes a found library usable from the repository's BUILD file.

    Returns struct(srcs, linkopts) for a cc_library: an archive is linked into the repository and named in `srcs`, a
    shared library goes to `linkopts`, with its folder for the linker.
    """
    if library.archive:
        ctx.symlink(library.archive, "lib/lib{}.a".format(name))
        return struct(srcs = ["lib/lib{}.a".format(name)], linkopts = [])
    return struct(srcs = [], linkopts = ["-L{}".format(library.shared.dirname), "-l" + name])

def _pkg_config(ctx, module):
    """Returns struct(includes, libraries): the folders that pkg-config names for `module`; empty without pkg-config."""
    tool = ctx.which("pkg-config")
    if not module or not tool:
        return struct(includes = [], libraries = [])
    folders = {}
    for flag, option in {"-I": "--cflags-only-I", "-L": "--libs-only-L"}.items():
        result = ctx.execute([tool, option, module])
        words = result.stdout.split(" ") if result.return_code == 0 else []
        folders[flag] = [w.strip()[2:].rstrip("/") for w in words if w.strip().startswith(flag)]
    return struct(includes = folders["-I"], libraries = folders["-L"])

def _system_library_impl(ctx):
    found = _pkg_config(ctx, ctx.attr.pkg_config)

    includes = [d for d in found.includes if d not in INCLUDE_DIRS]
    holders = [d for d in includes + INCLUDE_DIRS if ctx.path("{}/{}".format(d, ctx.attr.header)).exists]
    if not holders:
        fail_missing("the header {}".format(ctx.attr.header), ctx.attr.package)

    # Folders the compiler does not search by itself become `includes` of the repository, that is -isystem.
    mapped = []
    for number, folder in enumerate(includes):
        name = "include{}".format(number)
        ctx.symlink(folder, name)
        mapped.append(name)

    build = ['package(default_visibility = ["//visibility:public"])\n']
    for target, libraries in sorted(ctx.attr.components.items()):
        srcs, linkopts = [], []
        for library in libraries:
            place = find_library(ctx, library, found.libraries + LIBRARY_DIRS)
            if not place.archive and not place.shared:
                fail_missing("the library lib{}".format(library), ctx.attr.package)
            parts = link_library(ctx, library, place)
            srcs += parts.srcs
            linkopts += parts.linkopts
        build.append("""
cc_library(
    name = "{}",
    srcs = {},
    hdrs = glob({}),
    defines = {},
    includes = {},
    linkopts = {},
    deps = {},
)
""".format(
            target,
            srcs,
            [folder + "/**" for folder in mapped],
            ctx.attr.defines,
            mapped,
            linkopts + ["-lpthread"],
            [":" + dep for dep in ctx.attr.deps.get(target, [])],
        ))
    ctx.file("BUILD.bazel", "".join(build))

def _system_file_impl(ctx):
    if not ctx.path(ctx.attr.path).exists:
        fail_missing(ctx.attr.path, ctx.attr.package)
    name = ctx.path(ctx.attr.path).basename
    ctx.symlink(ctx.attr.path, name)
    ctx.file("BUILD.bazel", 'exports_files(["{}"], visibility = ["//visibility:public"])\n'.format(name))

# One installed file, under its own name.
system_file = repository_rule(
    implementation = _system_file_impl,
    attrs = {
        "package": attr.string(mandatory = True, doc = "The Debian packages to install."),
        "path": attr.string(mandatory = True),
    },
    configure = True,
    local = True,
)

system_library = repository_rule(
    implementation = _system_library_impl,
    attrs = {
        "components": attr.string_list_dict(
            mandatory = True,
            doc = "Target -> the libraries it links, without lib and suffix; one that uses another stands before it.",
        ),
        "defines": attr.string_list(doc = "Macros that the headers want."),
        "deps": attr.string_list_dict(doc = "Target -> the other targets of this repository that it needs."),
        "header": attr.string(mandatory = True, doc = "A header that proves the package is there."),
        "package": attr.string(mandatory = True, doc = "The Debian packages to install."),
        "pkg_config": attr.string(doc = "The pkg-config module to ask for folders, where the plain ones do not do."),
    },
    configure = True,
    local = True,
)
