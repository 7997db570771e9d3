# evenkeel_vector_sources(TARGET NAME.inl): compiles a kernel file once for each kind of vector unit; see
# evenkeel/device/cpu/vector_isa.h. On other processors than x86-64 all three kinds are the baseline.
set(EVENKEEL_VECTOR_FLAGS_baseline "")
set(EVENKEEL_VECTOR_FLAGS_avx2 -mavx2 -mfma)
set(EVENKEEL_VECTOR_FLAGS_avx512 -mavx2 -mfma -mavx512f -mavx512bw -mavx512dq -mavx512vl -mprefer-vector-width=512)

function(evenkeel_vector_sources target kernels)
  get_filename_component(name ${kernels} NAME_WE)
  foreach(isa baseline avx2 avx512)
    set(source "${CMAKE_CURRENT_BINARY_DIR}/${name}_${isa}.cpp")
    file(CONFIGURE OUTPUT "${source}" @ONLY
         CONTENT "#define EVENKEEL_VECTOR_ISA ${isa}\n#include \"${CMAKE_CURRENT_SOURCE_DIR}/${kernels}\"\n")
    set(flags -O3 -Wno-psabi)
    if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
      list(APPEND flags ${EVENKEEL_VECTOR_FLAGS_${isa}})
    endif()
    set_source_files_properties("${source}" PROPERTIES COMPILE_OPTIONS "${flags}")
    target_sources(${target} PRIVATE "${source}")
  endforeach()
endfunction()
