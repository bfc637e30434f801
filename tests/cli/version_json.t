== args
version --json
== stdout ~
"schema": "memplan.version/1"
"version": "0.1.0"
"json_library": "cJSON 1.
