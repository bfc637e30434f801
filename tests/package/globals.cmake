# The library owns nothing that can be written to: no .data, no .bss. Constant
# tables that the loader relocates (.data.rel.ro) are read-only once loaded.
#   cmake -DOBJDUMP= -DOBJECTS= -P
cmake_minimum_required(VERSION 3.24)
foreach(object IN LISTS OBJECTS)
    if(object MATCHES "cJSON") # bundled: see the head of memplan.h
        continue()
    endif()
    execute_process(COMMAND "${OBJDUMP}" -h "${object}"
                    OUTPUT_VARIABLE text COMMAND_ERROR_IS_FATAL ANY)
    string(REGEX MATCHALL " \\.t?(data|bss)[^ ]* +[0-9a-f]+" sections "${text}")
    foreach(section IN LISTS sections)
        if(NOT section MATCHES " 0+$" AND NOT section MATCHES "\\.data\\.rel\\.ro")
            message(SEND_ERROR "${object} has writable data:${section}")
        endif()
    endforeach()
endforeach()
