# What `cmake --install` puts where: headers, both libraries with a CMake
# package and a pkg-config file, the program, its page and its completions.
include(CMakePackageConfigHelpers)

set(package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/memplan")

install(DIRECTORY "${PROJECT_SOURCE_DIR}/include/memplan"
        DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}"
        FILES_MATCHING PATTERN "*.h")
install(TARGETS memplan_shared memplan_static EXPORT memplanTargets
        RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}"
        LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}"
        ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}")
install(EXPORT memplanTargets NAMESPACE memplan::
        DESTINATION "${package_dir}")
install(FILES "${PROJECT_SOURCE_DIR}/LICENSE"
        DESTINATION "${CMAKE_INSTALL_DOCDIR}")

# A static libmemplan needs its users to find the cJSON it was built with.
if(memplan_json_library)
    set(find_json "include(CMakeFindDependencyMacro)
find_dependency(cJSON CONFIG)")
    set(pc_requires "Requires.private: libcjson yaml-0.1\n")
else()
    set(find_json "")
    set(pc_requires "Requires.private: yaml-0.1\n")
endif()

configure_package_config_file(
    "${CMAKE_CURRENT_SOURCE_DIR}/memplanConfig.cmake.in"
    "${CMAKE_CURRENT_BINARY_DIR}/memplanConfig.cmake"
    INSTALL_DESTINATION "${package_dir}")
write_basic_package_version_file(
    "${CMAKE_CURRENT_BINARY_DIR}/memplanConfigVersion.cmake"
    COMPATIBILITY SameMinorVersion)
install(FILES "${CMAKE_CURRENT_BINARY_DIR}/memplanConfig.cmake"
              "${CMAKE_CURRENT_BINARY_DIR}/memplanConfigVersion.cmake"
        DESTINATION "${package_dir}")

# An absolute folder stays as it is; any other one is below the prefix.
foreach(dir IN ITEMS LIBDIR INCLUDEDIR)
    if(IS_ABSOLUTE "${CMAKE_INSTALL_${dir}}")
        set(pc_${dir} "${CMAKE_INSTALL_${dir}}")
    else()
        set(pc_${dir} "\${prefix}/${CMAKE_INSTALL_${dir}}")
    endif()
endforeach()
# Relative to the file itself, so that the tree may be moved.
if(IS_ABSOLUTE "${CMAKE_INSTALL_LIBDIR}")
    set(pc_prefix "${CMAKE_INSTALL_PREFIX}")
else()
    file(RELATIVE_PATH up "/prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/prefix")
    string(REGEX REPLACE "/$" "" up "${up}")
    set(pc_prefix "\${pcfiledir}/${up}")
endif()
file(CONFIGURE OUTPUT "${CMAKE_CURRENT_BINARY_DIR}/memplan.pc" @ONLY CONTENT
"prefix=${pc_prefix}
libdir=${pc_LIBDIR}
includedir=${pc_INCLUDEDIR}

Name: memplan
Description: ${PROJECT_DESCRIPTION}
Version: ${PROJECT_VERSION}
${pc_requires}Libs: -L\${libdir} -lmemplan
Libs.private: -lm
Cflags: -I\${includedir}
")
install(FILES "${CMAKE_CURRENT_BINARY_DIR}/memplan.pc"
        DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig")

if(MEMPLAN_BUILD_CLI)
    install(TARGETS memplan_cli
            RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}")
    if(EXISTS "${PROJECT_SOURCE_DIR}/docs/memplan.1")
        install(FILES "${PROJECT_SOURCE_DIR}/docs/memplan.1"
                DESTINATION "${CMAKE_INSTALL_MANDIR}/man1")
    endif()
    if(NOT CMAKE_CROSSCOMPILING)
        install(FILES "${completions}/memplan.bash" RENAME memplan
                DESTINATION "${CMAKE_INSTALL_DATADIR}/bash-completion/completions")
        install(FILES "${completions}/memplan.zsh" RENAME _memplan
                DESTINATION "${CMAKE_INSTALL_DATADIR}/zsh/site-functions")
        install(FILES "${completions}/memplan.fish"
                DESTINATION "${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d")
    endif()
endif()
