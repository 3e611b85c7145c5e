# cpack, before it packs a .deb: each package has share/doc/NAME/copyright. Debian's systems have the licence's text.
if(NOT CPACK_GENERATOR STREQUAL "DEB")
  return()
endif()
foreach(component ${CPACK_COMPONENTS_ALL})
  string(TOUPPER ${component} upper)
  set(folder ${CPACK_TEMPORARY_DIRECTORY}/${component}${CPACK_PACKAGING_INSTALL_PREFIX}/share/doc)
  file(REMOVE_RECURSE ${folder})
  file(WRITE ${folder}/${CPACK_DEBIAN_${upper}_PACKAGE_NAME}/copyright
"Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: troupe

Files: *
Copyright: The troupe authors
License: Apache-2.0

License: Apache-2.0
 On Debian systems the text of the Apache License 2.0 is in
 /usr/share/common-licenses/Apache-2.0.
")
endforeach()
