# Configures, builds and runs the consumer project in an empty folder.
#   cmake -DMODE= -DSOURCE= -DWORK= -DPREFIX= -DLIBDIR= -DMEMPLAN_DIR= -DCC= -P
cmake_minimum_required(VERSION 3.24)
file(REMOVE_RECURSE "${WORK}")
set(ENV{PKG_CONFIG_PATH} "${PREFIX}/${LIBDIR}/pkgconfig")
set(ENV{LD_LIBRARY_PATH} "${PREFIX}/${LIBDIR}")

function(step)
    execute_process(COMMAND ${ARGN} RESULT_VARIABLE status
                    OUTPUT_VARIABLE said ERROR_VARIABLE said)
    if(NOT status EQUAL 0)
        message(FATAL_ERROR "${MODE}: ${ARGN}\n${said}")
    endif()
endfunction()

step("${CMAKE_COMMAND}" -S "${SOURCE}" -B "${WORK}" -DMODE=${MODE}
     "-DCMAKE_PREFIX_PATH=${PREFIX}" "-DMEMPLAN_DIR=${MEMPLAN_DIR}"
     "-DCMAKE_C_COMPILER=${CC}"
     "-DFETCHCONTENT_SOURCE_DIR_CJSON=${JSON_DIR}"
     "-DFETCHCONTENT_TRY_FIND_PACKAGE_MODE=${JSON_MODE}")
step("${CMAKE_COMMAND}" --build "${WORK}" -j)
step("${WORK}/consumer")
