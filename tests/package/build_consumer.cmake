# Configures SOURCE in BUILD with the settings of the file CACHE and with ARGUMENTS, builds it and runs its consumer.
if(FRESH)
  file(REMOVE_RECURSE ${BUILD})
endif()
execute_process(COMMAND ${CMAKE_COMMAND} -S ${SOURCE} -B ${BUILD} -G ${GENERATOR} -C ${CACHE} ${ARGUMENTS}
                COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${CMAKE_COMMAND} --build ${BUILD} --parallel ${CORES} COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${BUILD}/consumer COMMAND_ERROR_IS_FATAL ANY)
