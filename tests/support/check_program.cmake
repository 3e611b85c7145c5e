# Runs PROGRAM with ARGUMENTS. Fails unless it exits with STATUS and its standard output and standard error,
# concatenated in either order, match EXPECTED. They are captured separately because progress lines, which appear on
# standard error after two seconds, would split the lines of the output.
execute_process(COMMAND ${PROGRAM} ${ARGUMENTS} RESULT_VARIABLE status OUTPUT_VARIABLE printed ERROR_VARIABLE errors)
set(said "${printed}${errors}")
message("${said}")
if(NOT status STREQUAL STATUS)
  message(FATAL_ERROR "exit status ${status} instead of ${STATUS}")
endif()
if(NOT said MATCHES "${EXPECTED}" AND NOT "${errors}${printed}" MATCHES "${EXPECTED}")
  message(FATAL_ERROR "the output does not match: ${EXPECTED}")
endif()
