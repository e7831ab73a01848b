# What cpack makes four Debian packages of (scripts/package): the library, what compiles against it, the program and the
# Python module. The library is a shared one, so that its users share it and get its repairs.
set(maintainer "the bilevel authors <bilevel@users.noreply.github.com>")
set(release 1)

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME bilevel)
set(CPACK_PACKAGE_CONTACT "${maintainer}")
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_PACKAGE_DIRECTORY ${PROJECT_BINARY_DIR}/packages)
set(CPACK_STRIP_FILES ON)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS
    OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
set(CPACK_COMPONENTS_GROUPING IGNORE)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_RELEASE ${release})
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${PROJECT_BINARY_DIR}/lib)

set(CPACK_COMPONENTS_ALL library development program)
set(name_of_library libbilevel)
set(name_of_development libbilevel-dev)
set(name_of_program bilevel)
set(name_of_python python3-bilevel)
set(CPACK_DEBIAN_LIBRARY_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PYTHON_PACKAGE_SECTION python)

set(same_library "libbilevel (= ${PROJECT_VERSION}-${release})")
set(CPACK_DEBIAN_LIBRARY_PACKAGE_RECOMMENDS libopenblas0-openmp)
# Who links the library depends on this version, and the loader learns of it by a trigger.
file(WRITE ${PROJECT_BINARY_DIR}/control/shlibs "libbilevel ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR} ${same_library}\n")
file(WRITE ${PROJECT_BINARY_DIR}/control/triggers "activate-noawait ldconfig\n")
set(CPACK_DEBIAN_LIBRARY_PACKAGE_CONTROL_EXTRA
    "${PROJECT_BINARY_DIR}/control/shlibs;${PROJECT_BINARY_DIR}/control/triggers")
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS "${same_library}, libtorch-dev, nlohmann-json3-dev")
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SHLIBDEPS OFF)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_DEPENDS "${same_library}")
set(CPACK_DEBIAN_PROGRAM_PACKAGE_SUGGESTS "graphviz, gnuplot-nox")

set(about "Hypergradients, algorithms and jobs for min f(x, w*(x)) such that w*(x)
minimises g(x, w), on LibTorch: cleaning of labels, tuning of regularisers,
search of network architectures, learning across tasks.\n\nThis package has")
set(CPACK_COMPONENT_LIBRARY_DESCRIPTION "${about} the shared library.")
set(CPACK_COMPONENT_DEVELOPMENT_DESCRIPTION "${about} what C++ programs compile against.")
set(CPACK_COMPONENT_PROGRAM_DESCRIPTION "${about} the program, its manual and completion.")
set(CPACK_COMPONENT_PYTHON_DESCRIPTION "${about} the module for Python 3.")

if(TARGET bilevel-python)
  list(APPEND CPACK_COMPONENTS_ALL python)
  # The module is compiled for one version of Python.
  execute_process(COMMAND ${BILEVEL_PYTHON_EXECUTABLE} -c "import sys; print('%d.%d;%d.%d' % (*sys.version_info[:2], sys.version_info[0], sys.version_info[1] + 1))"
                  OUTPUT_VARIABLE versions OUTPUT_STRIP_TRAILING_WHITESPACE)
  list(GET versions 0 this)
  list(GET versions 1 next)
  set(CPACK_DEBIAN_PYTHON_PACKAGE_DEPENDS "${same_library}, python3 (>= ${this}), python3 (<< ${next}), python3-torch")
  set(CPACK_DEBIAN_PYTHON_PACKAGE_RECOMMENDS python3-numpy)
  set(CPACK_DEBIAN_PYTHON_PACKAGE_SUGGESTS "python3-sklearn, python3-scipy, python3-pandas")
endif()

# Every package has a copyright and a changelog.
find_program(GZIP gzip REQUIRED)
string(TIMESTAMP date "%a, %d %b %Y 00:00:00 +0000" UTC)
set(changelog ${PROJECT_BINARY_DIR}/changelog.Debian)
file(WRITE ${changelog} "bilevel (${PROJECT_VERSION}-${release}) bookworm; urgency=medium

  * Version ${PROJECT_VERSION}.

 -- ${maintainer}  ${date}
")
execute_process(COMMAND ${GZIP} -9nf ${changelog} COMMAND_ERROR_IS_FATAL ANY)
foreach(component ${CPACK_COMPONENTS_ALL})
  string(TOUPPER ${component} upper)
  set(CPACK_DEBIAN_${upper}_PACKAGE_NAME ${name_of_${component}})
  set(folder ${CMAKE_INSTALL_DATADIR}/doc/${name_of_${component}})
  install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${folder} RENAME copyright COMPONENT ${component})
  install(FILES ${changelog}.gz DESTINATION ${folder} COMPONENT ${component})
endforeach()
include(CPack)
