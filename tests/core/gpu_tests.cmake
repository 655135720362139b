# GPU runtimes without a GPU: against stand-ins for the vendors' libraries, and every table and stand-in against the
# vendors' headers where those are (none is needed to build linkgauge).
set(LINKGAUGE_CUDA_INCLUDE "" CACHE STRING
  "Folders with cuda.h, nvrtc.h and nvml.h (wheels nvidia-cuda-runtime, nvidia-cuda-nvrtc, nvidia-nvml-dev-cu12)")
set(LINKGAUGE_NCCL_INCLUDE "" CACHE STRING
  "Folders with nccl.h and what it includes of CUDA (wheels nvidia-nccl-cu13, nvidia-cuda-runtime, -crt, -cccl)")
set(LINKGAUGE_UCX_INCLUDE "" CACHE STRING "Folder with ucp/api/ucp.h of 1.22 or newer (wheel libucx-cu12)")
set(LINKGAUGE_OFI_INCLUDE "" CACHE STRING "Folder with rdma/fabric.h of 1.17 or newer (Debian: libfabric-dev)")
set(LINKGAUGE_NVSHMEM_INCLUDE "" CACHE STRING
  "Folders with nvshmem_host.h and what it includes of CUDA (wheels nvidia-nvshmem-cu13, nvidia-cuda-runtime, -cccl)")
set(LINKGAUGE_NVJITLINK_INCLUDE "" CACHE STRING "Folder with nvJitLink.h (wheel nvidia-nvjitlink)")
set(LINKGAUGE_SYCL_INCLUDE "" CACHE STRING "Folder with syclinterface/ of DPCTL 0.21 or newer (wheel dpctl, dpctl/include)")
set(LINKGAUGE_HIP_INCLUDE "" CACHE STRING "Folder with hip/hip_runtime_api.h (Debian: libamdhip64-dev, /usr/include)")

set(stand_in_folder ${CMAKE_BINARY_DIR}/stand_in)
# What most stand-ins share, compiled once; each library has its own copy of it.
add_library(stand_in_machine OBJECT tests/core/stand_in/machine.cpp)
set_target_properties(stand_in_machine PROPERTIES CXX_VISIBILITY_PRESET hidden POSITION_INDEPENDENT_CODE ON)
target_link_libraries(stand_in_machine PRIVATE linkgauge_test_code)
# linkgauge_stand_in(target file sources...): a library with exactly that file name, which the loader looks for.
function(linkgauge_stand_in target file)
  add_library(${target} SHARED ${ARGN})
  set_target_properties(${target} PROPERTIES PREFIX "" OUTPUT_NAME ${file} SUFFIX "" CXX_VISIBILITY_PRESET hidden
    LIBRARY_OUTPUT_DIRECTORY ${stand_in_folder} NO_SONAME ON)
  target_include_directories(${target} PRIVATE tests/core/stand_in)
  target_link_libraries(${target} PRIVATE linkgauge_test_code)
  target_link_options(${target} PRIVATE -Wl,--exclude-libs,ALL)
endfunction()
linkgauge_stand_in(cuda_stand_in libcuda.so.1 tests/core/stand_in/cuda_stand_in.cpp $<TARGET_OBJECTS:stand_in_machine>)
linkgauge_stand_in(hip_stand_in libamdhip64.so.7 tests/core/stand_in/hip_stand_in.cpp $<TARGET_OBJECTS:stand_in_machine>)
linkgauge_stand_in(nvml_stand_in libnvidia-ml.so.1 tests/core/stand_in/nvml_stand_in.cpp)
linkgauge_stand_in(nvshmem_stand_in libnvshmem_host.so.3 tests/core/stand_in/nvshmem_stand_in.cpp
  $<TARGET_OBJECTS:stand_in_machine>)
set_target_properties(nvshmem_stand_in PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${stand_in_folder}/nvshmem)
# What kernels that put are made with, beside it: a linker, its device code, and headers of which none is read.
linkgauge_stand_in(nvjitlink_stand_in libnvJitLink.so.12 tests/core/stand_in/nvjitlink_stand_in.cpp)
set_target_properties(nvjitlink_stand_in PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${stand_in_folder}/nvshmem)
file(WRITE ${stand_in_folder}/nvshmem/libnvshmem_device.a "")
foreach(header nvshmem.h cuda_fp16.h cuda/std/cstdint nccl_device/impl/lsa_barrier__funcs.h)
  file(WRITE ${stand_in_folder}/include/${header} "")
endforeach()
linkgauge_stand_in(sycl_stand_in libDPCTLSyclInterface.so tests/core/stand_in/sycl_stand_in.cpp
  $<TARGET_OBJECTS:stand_in_machine>)
set_target_properties(sycl_stand_in PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${stand_in_folder}/sycl)
# What goes wrong on purpose in sessions of Python's tests (tests/planted_faults.py).
linkgauge_stand_in(planted_faults libplanted_faults.so tests/core/planted_faults.cpp)
# Two compilers, so that one is newer than a driver of CUDA 12.
foreach(major 12 13)
  linkgauge_stand_in(nvrtc${major}_stand_in libnvrtc.so.${major} tests/core/stand_in/nvrtc_stand_in.cpp)
  set_target_properties(nvrtc${major}_stand_in PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${stand_in_folder}/nvrtc${major})
  target_compile_definitions(nvrtc${major}_stand_in PRIVATE LINKGAUGE_STAND_IN_NVRTC_MAJOR=${major})
endforeach()
# Four ages: as 2.28, without the calls that came after 2.18, too old to be of use, and as 2.32.
set(nccl_stand_ins)
foreach(age 0 1 2 3)
  linkgauge_stand_in(nccl${age}_stand_in libnccl.so.2 tests/core/stand_in/nccl_stand_in.cpp
    $<TARGET_OBJECTS:stand_in_machine>)
  set_target_properties(nccl${age}_stand_in PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${stand_in_folder}/nccl${age})
  target_compile_definitions(nccl${age}_stand_in PRIVATE LINKGAUGE_STAND_IN_NCCL_AGE=${age})
  list(APPEND nccl_stand_ins nccl${age}_stand_in)
endforeach()

file(GLOB LINKGAUGE_GPU_TEST_SOURCES CONFIGURE_DEPENDS tests/core/gpu/*.cpp)
add_executable(gpu_tests ${LINKGAUGE_GPU_TEST_SOURCES} tests/core/planted_faults.cpp)
target_link_libraries(gpu_tests PRIVATE linkgauge_test_code GTest::gtest GTest::gtest_main)
target_include_directories(gpu_tests PRIVATE tests/core tests/core/stand_in)
target_compile_definitions(gpu_tests PRIVATE LINKGAUGE_STAND_IN_FOLDER="${stand_in_folder}")
# The loader then finds the stand-ins before a real driver, also where LD_LIBRARY_PATH names that (old dtags: RPATH).
set_target_properties(gpu_tests PROPERTIES BUILD_RPATH ${stand_in_folder})
target_link_options(gpu_tests PRIVATE -Wl,--disable-new-dtags)
add_dependencies(gpu_tests linkgauge_hiprtc cuda_stand_in hip_stand_in nvml_stand_in nvrtc12_stand_in nvrtc13_stand_in
  nvshmem_stand_in nvjitlink_stand_in sycl_stand_in ${nccl_stand_ins})
gtest_discover_tests(gpu_tests TEST_FILTER "-RealHip.*" DISCOVERY_TIMEOUT 60 PROPERTIES PROCESSORS 2)
gtest_discover_tests(gpu_tests TEST_FILTER "RealHip.*" DISCOVERY_TIMEOUT 60)

# linkgauge_header_check(target include sources...): compiles only.
function(linkgauge_header_check target include)
  add_library(${target} OBJECT ${ARGN})
  target_include_directories(${target} PRIVATE core tests/core/stand_in tests/core/vendor_headers)
  target_include_directories(${target} SYSTEM PRIVATE ${include})
  target_compile_definitions(${target} PRIVATE LINKGAUGE_VENDOR_HEADERS)
endfunction()
if(LINKGAUGE_CUDA_INCLUDE)
  linkgauge_header_check(cuda_header_check "${LINKGAUGE_CUDA_INCLUDE}" tests/core/vendor_headers/cuda_headers.cpp
    tests/core/vendor_headers/cuda_headers_before_12_2.cpp
    tests/core/stand_in/cuda_stand_in.cpp tests/core/stand_in/nvml_stand_in.cpp tests/core/stand_in/nvrtc_stand_in.cpp)
  target_compile_definitions(cuda_header_check PRIVATE LINKGAUGE_STAND_IN_NVRTC_MAJOR=13)
endif()
if(LINKGAUGE_NCCL_INCLUDE)
  linkgauge_header_check(nccl_header_check "${LINKGAUGE_NCCL_INCLUDE}" tests/core/vendor_headers/nccl_headers.cpp
    tests/core/stand_in/nccl_stand_in.cpp)
  target_compile_definitions(nccl_header_check PRIVATE LINKGAUGE_STAND_IN_NCCL_AGE=3)
endif()
if(LINKGAUGE_UCX_INCLUDE)
  linkgauge_header_check(ucx_header_check "${LINKGAUGE_UCX_INCLUDE}" tests/core/vendor_headers/ucx_headers.cpp)
endif()
if(LINKGAUGE_OFI_INCLUDE)
  linkgauge_header_check(ofi_header_check "${LINKGAUGE_OFI_INCLUDE}" tests/core/vendor_headers/ofi_headers.cpp)
endif()
if(LINKGAUGE_NVSHMEM_INCLUDE)
  linkgauge_header_check(nvshmem_header_check "${LINKGAUGE_NVSHMEM_INCLUDE}"
    tests/core/vendor_headers/nvshmem_headers.cpp tests/core/stand_in/nvshmem_stand_in.cpp)
endif()
if(LINKGAUGE_NVJITLINK_INCLUDE)
  linkgauge_header_check(nvjitlink_header_check "${LINKGAUGE_NVJITLINK_INCLUDE}"
    tests/core/vendor_headers/nvjitlink_headers.cpp tests/core/stand_in/nvjitlink_stand_in.cpp)
endif()
if(LINKGAUGE_SYCL_INCLUDE)
  linkgauge_header_check(sycl_header_check "${LINKGAUGE_SYCL_INCLUDE}" tests/core/vendor_headers/sycl_headers.cpp
    tests/core/stand_in/sycl_stand_in.cpp)
endif()
if(LINKGAUGE_HIP_INCLUDE)
  linkgauge_header_check(hip_header_check "${LINKGAUGE_HIP_INCLUDE}" tests/core/vendor_headers/hip_headers.cpp
    tests/core/stand_in/hip_stand_in.cpp)
endif()

# The tests of real devices, on the stand-ins: they then run everywhere, and cannot be wrong for long unseen.
# Under an emulator without hip: its compiler is a program of its own, which an emulated process cannot start.
set(real_device_tests "*RealDevice*/cuda:*RealDevice*/hip")
if(CMAKE_CROSSCOMPILING)
  set(real_device_tests "*RealDevice*/cuda")
endif()
add_test(NAME real_device_tests_on_stand_ins COMMAND core_tests "--gtest_filter=${real_device_tests}:-*OnePercent*")
set_tests_properties(real_device_tests_on_stand_ins PROPERTIES TIMEOUT 120 PROCESSORS 2
  ENVIRONMENT "LD_LIBRARY_PATH=${stand_in_folder};XDG_CACHE_HOME=${CMAKE_BINARY_DIR}/cache;\
LINKGAUGE_TEST_LIBRARY_FOLDERS=${stand_in_folder}/nvrtc12")
