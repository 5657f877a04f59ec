# Toolchain: compiles for 64-bit ARM on a Debian machine of another kind, and runs the tests under emulation.
# tools/test_arm64 unpacks the libraries into FORGE_ARM64_LIBRARIES and uses this.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)

set(FORGE_ARM64_LIBRARIES "${CMAKE_CURRENT_LIST_DIR}/../build/arm64-libraries" CACHE PATH "Unpacked Debian packages")
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES FORGE_ARM64_LIBRARIES)
get_filename_component(_root "${FORGE_ARM64_LIBRARIES}" ABSOLUTE)
set(CMAKE_FIND_ROOT_PATH "${_root}" /usr/aarch64-linux-gnu)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
set(ENV{PKG_CONFIG_LIBDIR} "${_root}/usr/lib/aarch64-linux-gnu/pkgconfig")
set(ENV{PKG_CONFIG_SYSROOT_DIR} "${_root}")
# Libraries that libraries need; some packages have them in /lib.
set(CMAKE_EXE_LINKER_FLAGS_INIT "-Wl,-rpath-link,${_root}/usr/lib/aarch64-linux-gnu:${_root}/lib/aarch64-linux-gnu")
set(CMAKE_SHARED_LINKER_FLAGS_INIT "${CMAKE_EXE_LINKER_FLAGS_INIT}")

find_program(QEMU_AARCH64 NAMES qemu-aarch64-static qemu-aarch64)
if(QEMU_AARCH64)
  set(CMAKE_CROSSCOMPILING_EMULATOR "${QEMU_AARCH64};-L;/usr/aarch64-linux-gnu;-E;LD_LIBRARY_PATH=${_root}/usr/lib/aarch64-linux-gnu:${_root}/lib/aarch64-linux-gnu")
endif()
