# SPDX-License-Identifier: Apache-2.0
# cmake --install build/release --prefix DIR        programs, units, pages; they use this machine's libraries
#   ... --component libraries                       beside them what they load, but for libc: DIR may go elsewhere
# scripts/package.sh makes an archive of both.
include(GNUInstallDirs)
set(_programs tandem tandem-controller tandem-worker)
if(TANDEM_TORCH)
  list(APPEND _programs tandem-trainer)
endif()
set(_programs_for_gpus)
if(TANDEM_HAS_CUDA)
  set(_programs_for_gpus tandem-trainer-cuda)
endif()

# The libraries that came with the programs come first; without them LibTorch is where it was for the build.
set(_libraries ${CMAKE_INSTALL_LIBDIR}/tandem)
file(RELATIVE_PATH _from_bin ${CMAKE_INSTALL_FULL_BINDIR} ${CMAKE_INSTALL_PREFIX}/${_libraries})
# The same in the build: it would be given room by empty entries otherwise, which mean the working directory.
set_target_properties(${_programs} ${_programs_for_gpus} PROPERTIES INSTALL_RPATH "$ORIGIN/${_from_bin}" INSTALL_RPATH_USE_LINK_PATH ON
  BUILD_WITH_INSTALL_RPATH ON)
foreach(program IN LISTS _programs _programs_for_gpus)
  # RPATH, not RUNPATH: it is that of libraries of libraries too.
  target_link_options(${program} PRIVATE -Wl,--disable-new-dtags)
endforeach()

install(TARGETS ${_programs} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT programs)
if(_programs_for_gpus)
  install(TARGETS ${_programs_for_gpus} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT programs_for_gpus)
  foreach(package IN ITEMS cutlass cudnn_frontend)  # whose headers are compiled into it
    file(GLOB _license ${TANDEM_TORCH_DIR}/../nvidia_${package}-*.dist-info/licenses/LICENSE.txt)
    if(_license)
      install(FILES ${_license} RENAME LICENSE.${package} DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT programs_for_gpus)
    endif()
  endforeach()
endif()
# In the folders that they have here, so that links between pages work.
install(FILES README.md LICENSE CHANGELOG.md CONTRIBUTING.md DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT programs)
install(DIRECTORY docs DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT programs)
install(FILES bench/RESULTS.md DESTINATION ${CMAKE_INSTALL_DOCDIR}/bench COMPONENT programs)
install(FILES python/README.md DESTINATION ${CMAKE_INSTALL_DOCDIR}/python COMPONENT programs)
install(DIRECTORY examples deploy DESTINATION ${CMAKE_INSTALL_DATADIR}/tandem COMPONENT programs)
# For pip: the client, and tandem-py, which `tandem data` runs.
file(WRITE ${CMAKE_BINARY_DIR}/python/VERSION ${PROJECT_VERSION}\n)
install(FILES ${CMAKE_BINARY_DIR}/python/VERSION DESTINATION ${CMAKE_INSTALL_DATADIR}/tandem/python COMPONENT programs)
install(DIRECTORY python proto DESTINATION ${CMAKE_INSTALL_DATADIR}/tandem COMPONENT programs PATTERN __pycache__ EXCLUDE)

# All that the programs load when they start. The one for GPUs loads gigabytes more, by name, while it runs: it is to
# use the LibTorch of its machine.
set(_loaders ${_programs})
list(TRANSFORM _loaders PREPEND "$<TARGET_FILE:")
list(TRANSFORM _loaders APPEND ">")
list(JOIN _loaders " " _loaders)
install(CODE "
  file(GET_RUNTIME_DEPENDENCIES
    EXECUTABLES ${_loaders}
    RESOLVED_DEPENDENCIES_VAR found
    UNRESOLVED_DEPENDENCIES_VAR missing
    CONFLICTING_DEPENDENCIES_PREFIX conflicts
    # What every Linux of the same age has, and what must be that of the machine.
    PRE_EXCLUDE_REGEXES \"^lib(c|m|dl|rt|util|pthread|resolv|stdc\\\\+\\\\+|gcc_s)\\\\.so\" \"^ld-linux\")
  if(missing OR conflicts_FILENAMES)
    message(FATAL_ERROR \"not found: \${missing}; in two places: \${conflicts_FILENAMES}\")
  endif()
  file(INSTALL DESTINATION \"\${CMAKE_INSTALL_PREFIX}/${_libraries}\" TYPE SHARED_LIBRARY FOLLOW_SYMLINK_CHAIN FILES \${found})
" COMPONENT libraries EXCLUDE_FROM_ALL)
