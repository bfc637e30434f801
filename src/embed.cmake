# memplan_embed_models(target models_dir): writes the specifications in
# models_dir into a C array that data/models.c includes, and lets the target
# find it. At configure time, in CMake alone: nothing has to run on the machine
# that builds, and a file added, changed or removed configures again.
function(memplan_embed_models target models_dir)
    file(GLOB files CONFIGURE_DEPENDS RELATIVE "${models_dir}"
         "${models_dir}/*.json")
    # By name without the suffix, in byte order: the search relies on it.
    list(TRANSFORM files REPLACE "\\.json$" "")
    list(SORT files COMPARE STRING CASE SENSITIVE)

    set(arrays "")
    set(rows "")
    set(index 0)
    foreach(name IN LISTS files)
        set(path "${models_dir}/${name}.json")
        set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS
                     "${path}")
        file(READ "${path}" bytes HEX)
        if(bytes STREQUAL "")
            message(FATAL_ERROR "${path} is empty")
        endif()
        # 19 bytes a line
        string(REGEX REPLACE "(......................................)"
               "\\1\n" bytes "${bytes}")
        string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
        string(APPEND arrays
               "static const unsigned char model_${index}[] = {\n"
               "${bytes}\n};\n")
        string(APPEND rows "    { \"${name}\", (const char *)model_${index}, "
                           "sizeof model_${index} },\n")
        math(EXPR index "${index} + 1")
    endforeach()
    if(index EQUAL 0)
        message(FATAL_ERROR "no models in ${models_dir}")
    endif()

    set(folder "${CMAKE_CURRENT_BINARY_DIR}/embedded")
    string(CONCAT text
           "/* Generated from models/ by src/embed.cmake. */\n${arrays}"
           "static const struct model_text models[] = {\n${rows}};\n")
    # Written only when it differs, so that nothing else compiles again.
    file(CONFIGURE OUTPUT "${folder}/models.inc" CONTENT "${text}" @ONLY)
    target_include_directories(${target} PRIVATE "${folder}")
endfunction()
