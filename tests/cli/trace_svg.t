== args
trace gpt2 --format svg
== stdout ~
<svg xmlns="http://www.w3.org/2000/svg" role="img"
<title>gpt2: memory over a step</title>
</svg>
