# Builds the SOURCES, in one file, with COMPILER and FLAGS by what pkg-config says of MODULE in the package below PACKAGE, as a makefile would,
# and runs the result. A shared troupe outside the system's folders is found by LD_LIBRARY_PATH, and so is a CAF in
# LIBRARIES.
file(GLOB_RECURSE file ${PACKAGE}/${MODULE}.pc)
if(NOT file)
  message(FATAL_ERROR "${PACKAGE} has no ${MODULE}.pc")
endif()
cmake_path(GET file PARENT_PATH folder)
set(ENV{PKG_CONFIG_PATH} "${folder}:$ENV{PKG_CONFIG_PATH}")
set(ENV{LD_LIBRARY_PATH} "${folder}/..:${LIBRARIES}:$ENV{LD_LIBRARY_PATH}")
foreach(what cflags libs)
  execute_process(COMMAND ${PKG_CONFIG} --${what} ${MODULE} OUTPUT_VARIABLE ${what} OUTPUT_STRIP_TRAILING_WHITESPACE
                  COMMAND_ERROR_IS_FATAL ANY)
  separate_arguments(${what} UNIX_COMMAND "${${what}}")
endforeach()
separate_arguments(FLAGS UNIX_COMMAND "${FLAGS}")

file(REMOVE_RECURSE ${BUILD})
file(MAKE_DIRECTORY ${BUILD})
list(GET SOURCES 0 source)
cmake_path(GET source EXTENSION extension)
list(TRANSFORM SOURCES REPLACE "(.+)" "#include \"\\1\"\n" OUTPUT_VARIABLE included)
list(JOIN included "" included)
file(WRITE ${BUILD}/consumer${extension} "${included}")
execute_process(COMMAND ${LAUNCHER} ${COMPILER} ${FLAGS} ${cflags} -c ${BUILD}/consumer${extension} -o ${BUILD}/consumer.o
                COMMAND_ECHO STDOUT COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${COMPILER} ${FLAGS} ${BUILD}/consumer.o ${libs} -o ${BUILD}/consumer
                COMMAND_ECHO STDOUT COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${BUILD}/consumer COMMAND_ERROR_IS_FATAL ANY)
