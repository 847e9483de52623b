"""How many machines a stream needs, from rates alone (Cervino 2012). Pure: it knows neither Spark
nor clocks. The policy `provision` and attached queries use it."""
