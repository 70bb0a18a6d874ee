# The page's TypeScript, checked by tsc, bundled by esbuild and built into the program; without these two, an empty one.
find_program(TEMPERA_ESBUILD esbuild)
find_program(TEMPERA_TSC tsc)

set(web ${CMAKE_CURRENT_SOURCE_DIR}/web)
set(built ${CMAKE_CURRENT_BINARY_DIR}/web)
set(bundle ${built}/bundle.cc)
# Imported by the style.
set(theme ${CMAKE_CURRENT_SOURCE_DIR}/../plot/theme.css)
file(GLOB web_sources CONFIGURE_DEPENDS ${web}/*.ts)
file(MAKE_DIRECTORY ${built})

if(TEMPERA_ESBUILD AND TEMPERA_TSC)
  add_custom_command(OUTPUT ${bundle}
    COMMAND ${TEMPERA_TSC} --project ${web}/tsconfig.json
    COMMAND ${TEMPERA_ESBUILD} ${web}/main.ts --bundle --minify --format=iife --target=es2020 --charset=utf8
            --log-level=warning --outfile=${built}/main.js
    COMMAND ${TEMPERA_ESBUILD} ${web}/style.css --bundle --minify --charset=utf8 --log-level=warning --outfile=${built}/style.css
    COMMAND ${CMAKE_COMMAND} -DSCRIPT=${built}/main.js -DSTYLE=${built}/style.css -DOUT=${bundle}
            -P ${CMAKE_CURRENT_SOURCE_DIR}/embed.cmake
    DEPENDS ${web_sources} ${web}/style.css ${theme} ${web}/tsconfig.json ${CMAKE_CURRENT_SOURCE_DIR}/embed.cmake
    COMMENT "Bundling the page of tempera lens" VERBATIM)
else()
  message(STATUS "tempera lens is built without its page: esbuild and tsc were not found")
  add_custom_command(OUTPUT ${bundle}
    COMMAND ${CMAKE_COMMAND} -DOUT=${bundle} -P ${CMAKE_CURRENT_SOURCE_DIR}/embed.cmake
    DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/embed.cmake VERBATIM)
endif()
tempera_library(tempera_lens_bundle SOURCES ${bundle})
