# Runs PROGRAM with ARGUMENTS; fails unless it exits with STATUS and says something that matches EXPECTED.
execute_process(COMMAND ${PROGRAM} ${ARGUMENTS} RESULT_VARIABLE status OUTPUT_VARIABLE said ERROR_VARIABLE said)
message("${said}")
if(NOT status STREQUAL STATUS)
  message(FATAL_ERROR "exit status ${status} instead of ${STATUS}")
endif()
if(NOT said MATCHES "${EXPECTED}")
  message(FATAL_ERROR "nothing said matches: ${EXPECTED}")
endif()
