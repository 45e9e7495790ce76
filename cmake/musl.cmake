# Toolchain file: musl-gcc, as Debian's musl-tools packages it. Its include path lacks the kernel's headers, which carry no
# libc in them; links to just those folders are added, so that no header of glibc is found by accident.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_C_COMPILER musl-gcc)

set(kernel_headers ${CMAKE_BINARY_DIR}/kernel-headers)
if(NOT CMAKE_BINARY_DIR MATCHES "/CMakeTmp|/CMakeScratch" AND NOT EXISTS ${kernel_headers}/asm)
    execute_process(COMMAND gcc -print-multiarch OUTPUT_VARIABLE multiarch OUTPUT_STRIP_TRAILING_WHITESPACE)
    file(MAKE_DIRECTORY ${kernel_headers})
    file(CREATE_LINK /usr/include/linux ${kernel_headers}/linux SYMBOLIC)
    file(CREATE_LINK /usr/include/asm-generic ${kernel_headers}/asm-generic SYMBOLIC)
    file(CREATE_LINK /usr/include/${multiarch}/asm ${kernel_headers}/asm SYMBOLIC)
endif()
set(CMAKE_C_FLAGS_INIT "-idirafter ${kernel_headers}")
